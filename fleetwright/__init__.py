"""The SDK, and the code that runs inside training jobs and inference engines."""
