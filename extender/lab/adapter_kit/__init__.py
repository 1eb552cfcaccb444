"""``vreplica adapter-kit``: plays the scheduler against an adapter, and says which rules of the
contract (docs/adapters.md) it breaks.

==============  ===================================================================================
``contract``    what an adapter may do and say, given what it was told: pure
``stage``       one pod: two replicas of the listener, the adapter's process, the files of its pod
``listener``    a replica: TLS, the token, streams, and the faults of a service
``rules``       what is played, a coroutine for each rule
``run``         all rules, some at a time, and their results
==============  ===================================================================================
"""
