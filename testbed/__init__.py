"""Hardware-in-the-loop testbed for optical fabrics and the jobs that run over them.

The framework in this package knows no vendor and no paper: drivers live in
``devices``, systems under study in ``experiments``, and both are found through
entry points, exactly as those of a third party.
"""
