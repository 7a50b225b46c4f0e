"""The message types of pprof's profile format, built from their field numbers.

The numbers are those of profile.proto in github.com/google/pprof (version of 2024), of which only what a heap profile
needs is named here; no package on PyPI contains the compiled file.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto
# message → field → (number, type, is repeated); a type that is a name is a message's.
_MESSAGES: dict[str, dict[str, tuple[int, Any, bool]]] = {
    "ValueType": {"type": (1, _FIELD.TYPE_INT64, False), "unit": (2, _FIELD.TYPE_INT64, False)},
    "Label": {"key": (1, _FIELD.TYPE_INT64, False), "str": (2, _FIELD.TYPE_INT64, False)},
    "Sample": {
        "location_id": (1, _FIELD.TYPE_UINT64, True),
        "value": (2, _FIELD.TYPE_INT64, True),
        "label": (3, "Label", True),
    },
    "Line": {"function_id": (1, _FIELD.TYPE_UINT64, False), "line": (2, _FIELD.TYPE_INT64, False)},
    "Location": {"id": (1, _FIELD.TYPE_UINT64, False), "line": (4, "Line", True)},
    "Function": {
        "id": (1, _FIELD.TYPE_UINT64, False),
        "name": (2, _FIELD.TYPE_INT64, False),
        "system_name": (3, _FIELD.TYPE_INT64, False),
        "filename": (4, _FIELD.TYPE_INT64, False),
    },
    "Profile": {
        "sample_type": (1, "ValueType", True),
        "sample": (2, "Sample", True),
        "location": (4, "Location", True),
        "function": (5, "Function", True),
        "string_table": (6, _FIELD.TYPE_STRING, True),
        "default_sample_type": (14, _FIELD.TYPE_INT64, False),
    },
}


def _profile_class() -> Any:
    package = "snapreport.pprof"
    file = descriptor_pb2.FileDescriptorProto(name="snapreport/pprof.proto", package=package, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind, is_repeated) in fields.items():
            added = message.field.add(name=field, number=number)
            added.label = _FIELD.LABEL_REPEATED if is_repeated else _FIELD.LABEL_OPTIONAL
            if isinstance(kind, str):
                added.type, added.type_name = _FIELD.TYPE_MESSAGE, f".{package}.{kind}"
            else:
                added.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.Profile"))


Profile: Any = _profile_class()
"""The message ``perftools.profiles.Profile``, byte for byte."""
