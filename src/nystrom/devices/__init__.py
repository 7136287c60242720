"""Arrays of other namespaces and on other devices: where they are, and how NumPy's functions work on them."""

from nystrom.devices.array import DeviceArray, Sent, host, on_device, put, to_host, to_values
from nystrom.devices.place import (
    ENGINES,
    Place,
    beside,
    dispatches,
    fetch,
    is_foreign_array,
    named_place,
    numpy_dtype,
    place_of,
)

__all__ = [
    "ENGINES",
    "DeviceArray",
    "Place",
    "Sent",
    "beside",
    "dispatches",
    "fetch",
    "host",
    "is_foreign_array",
    "named_place",
    "numpy_dtype",
    "on_device",
    "place_of",
    "put",
    "to_host",
    "to_values",
]
