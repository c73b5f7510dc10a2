"""The one root of every error a user can cause, in all five packages.

V4Error
├── TraceError            a trace file, row or column is wrong           (v4traces)
├── ConfigError           a deployment, workload or option is wrong      (v4sim)
├── CapacityError         the deployment cannot hold what is asked       (v4sim)
├── ProfileError          a calibration profile is missing or unusable   (v4sim)
├── RunError              a run directory cannot be written or read      (v4sim)
└── CalibError            a measurement or an import cannot be made      (v4calib)

Messages say the value, the rule and the way out. Library code raises; only a `cli.main` turns
an error into one paragraph on stderr and exit code 2.
"""

from __future__ import annotations


class V4Error(Exception):
    """Something the user can put right. `str(error)` is the whole message."""


class TraceError(V4Error):
    """A trace file, row or column breaks the schema or a law of the trace."""
