"""The `gpus`, `models`, `offers` and `topology` commands: read and replace catalogue documents."""
