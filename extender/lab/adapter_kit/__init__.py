"""``vreplica adapter-kit``: plays the scheduler against an adapter, and says which rules of the
contract (docs/adapters.md) it breaks.

==============  ===================================================================================
``contract``    what an adapter may do and say, given what it was told: pure
``stage``       one pod: two replicas, the adapter's process and its files, and what is expected
``judging``     how a rule ends that is not kept, and how long an adapter may take
``listener``    a replica: TLS, the token, streams, and the faults of a service
``address``     where a replica listens: what a URL may be
``authority``   who signs the replicas' certificate
``process``     the adapter's process, or that of an adapter that runs already
``worklog``     what the adapter really does, beside what it says
``pools``       what rules begin with, and those of pools with leases and indexes
``pauses``      how long a share is without work once the adapter says that it serves it
``rules``       what is played, a coroutine for each rule
``run``         all rules, some at a time, and their results
``running``     all rules against an adapter that runs already
``folder``      what such an adapter needs, kept from run to run
==============  ===================================================================================
"""
