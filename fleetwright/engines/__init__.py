"""Code that runs inside an inference engine: the vLLM plug-in, placement files and the replica clock."""
