"""The paths of the control API, one module for each noun."""
