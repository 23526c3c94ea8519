"""The command of the nodes of the fleet."""
