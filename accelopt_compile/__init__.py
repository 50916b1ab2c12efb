"""AccelOpt Compile: `torch.compile(model, backend="accelopt")`."""

__version__ = "0.1.0"
