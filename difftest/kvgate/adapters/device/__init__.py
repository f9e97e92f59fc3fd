"""The plug-in's block copies on a device, next to a copy that does them slot by slot on the host."""
