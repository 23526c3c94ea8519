"""The controller process: it reconciles targets with their approved plans through actuators."""
