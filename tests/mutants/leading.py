"""Breaks of leading: the lease, the fence, catching up, and the informers that all rely on."""

from tests.mutants.mutant import Mutant

_LEADER = "extender/kube/leader.py"
_INFORMERS = "extender/service/informers.py"
_TEST = "tests/kube/test_leader.py::"
_INFORMED = "tests/service/test_informers.py::"
_CATCHES_UP = "tests/service/test_taking_over.py::"

LEADING = (
    Mutant(
        "the lease is written without compare-and-swap",
        _LEADER,
        'obj = {**current, "spec": {**mapping(current, "spec"), **spec}}',
        'metadata = {"namespace": lease.namespace, "name": lease.name}\n'
        '                obj = {"metadata": metadata, "spec": {**mapping(current, "spec"), **spec}}',
        "of two candidates both would get it",
        ("tests/kube/test_leader_race.py::test_of_two_that_see_the_lease_free_at_once_one_gets_it",),
    ),
    Mutant(
        "the lease is judged by the clock of its holder",
        _LEADER,
        "return asyncio.get_running_loop().time() >= self._seen_at + duration_s",
        'at = datetime.fromisoformat(text(self._seen, "spec", "renewTime"))\n'
        "        return self._now() >= at.timestamp() + duration_s",
        "no two machines' clocks agree",
        (f"{_TEST}test_anothers_clock_does_not_matter",),
    ),
    Mutant(
        "a lease that is held is taken",
        _LEADER,
        "return bool(self.leader_identity) and not self._is_ours() and not self._expired()",
        "return not self.identity",
        "two would lead",
        (f"{_TEST}test_of_two_candidates_one_leads_and_the_other_knows_who",),
    ),
    Mutant(
        "our name on the lease is enough",
        _LEADER,
        "return self.leader_identity == self.identity and written",
        "return self.leader_identity == self.identity",
        "a person may have put it there while another leads",
        (f"{_TEST}test_a_lease_that_somebody_has_put_our_name_on_is_taken_when_it_has_run_out",),
    ),
    Mutant(
        "a lease never expires",
        _LEADER,
        'if mapping(found, "spec") != mapping(self._seen, "spec"):\n            self._seen_at',
        "if found:\n            self._seen_at",
        "after a crash nobody would ever lead",
        (f"{_TEST}test_a_killed_leader_is_followed_after_its_lease_has_run_out",),
    ),
    Mutant(
        "the fence is ignored",
        _LEADER,
        "            and asyncio.get_running_loop().time() < self.fenced_until\n",
        "",
        "a process that slept through its lease would act before it knows",
        (f"{_TEST}test_a_process_that_slept_through_its_lease_knows_before_it_acts",),
    ),
    Mutant(
        "a suspended machine goes on leading",
        _LEADER,
        "            and self._now() < self._fenced_until_wall\n",
        "",
        "the monotonic clock stands still while it sleeps",
        (f"{_TEST}test_a_suspended_machine_whose_monotonic_clock_stood_still_knows_too",),
    ),
    Mutant(
        "renewed too late",
        _LEADER,
        "deadline = self.fenced_until - slack_s",
        "deadline = self.fenced_until + slack_s",
        "another may lead by then",
        (f"{_TEST}test_cut_off_from_the_server_the_leader_stops_before_another_can_start",),
    ),
    Mutant(
        "the lease is not released",
        _LEADER,
        "                await self._put_released()\n",
        "                pass\n",
        "SIGTERM would leave nobody leading for 15 s",
        (f"{_TEST}test_a_cancelled_leader_stops_first_and_then_gives_the_lease_up",),
    ),
    Mutant(
        "another holder does not end leadership",
        _LEADER,
        "await self._try_within(left_s) is _Try.OTHER:",
        "await self._try_within(left_s) is None:",
        "two would lead until the deadline",
        (f"{_TEST}test_seeing_another_holder_ends_leadership_at_once_and_it_competes_again",),
    ),
    Mutant(
        "leadership ends in deed only",
        _LEADER,
        "self.is_leader = False\n        self.leading_since",
        "self.leading_since",
        "what runs until its end would still believe that it leads",
        (f"{_TEST}test_cut_off_from_the_server_the_leader_stops_before_another_can_start",),
    ),
    Mutant(
        "a lease that was perhaps written is not looked for",
        _LEADER,
        "if self._unanswered:",
        "if self._unanswered is None:",
        "a write cancelled on its way may have arrived: nobody would lead for 15 s",
        (f"{_TEST}test_cancelled_while_its_acquiring_write_is_on_the_way_it_gives_up_what_it_got",),
    ),
    Mutant(
        "a deleted lease is taken at once",
        _LEADER,
        "if self._is_others() or not self._may_make_one():",
        "if not self._may_make_one():",
        "two would lead until the one that did looks",
        (f"{_TEST}test_a_lease_that_is_deleted_is_made_anew_by_who_leads",),
    ),
    Mutant(
        "who starts takes a deleted lease for one that never was",
        _LEADER,
        "if self._is_others() or not self._may_make_one():",
        "if self._is_others():",
        "two would lead until the one that did looks",
        (f"{_TEST}test_who_starts_just_after_a_lease_was_deleted_waits_until_its_holder_has_made_it_anew",),
    ),
    Mutant(
        "what is to leave its pod waits for no closed one",
        "extender/core/scaling/scale_down.py",
        "chain(state.unplaced, _to_leave(state))",
        "chain(state.unplaced)",
        "I3: a vreplica would stay on a pod taken for lost beside one with room",
        (
            "tests/core/test_scale_down.py::test_one_that_is_to_leave_its_pod_and_fits_on_no_open_one_waits_for_a_closed_one",
        ),
    ),
    Mutant(
        "writes are not fenced",
        "extender/kube/fenced.py",
        "if not self._leading():",
        "if self._leading is None:",
        "a process that was frozen goes on between what it has read and what it writes",
        ("tests/service/test_fenced.py::test_no_pod_is_repaired",),
    ),
    Mutant(
        "the fence is not asked again before a write is sent",
        "extender/kube/transport.py",
        "        check_fence()\n",
        "",
        "a write waits for its lane, and another leads when its turn comes",
        (
            "tests/kube/test_fence.py::test_a_write_that_has_waited_for_its_lane_is_not_sent_once_we_do_not_lead_any_more",
        ),
    ),
    Mutant(
        "a new leader does not catch up",
        "extender/app.py",
        "        await self.informers.catch_up()\n",
        "",
        "stale read: the leader before has written what our watch has not shown",
        (f"{_CATCHES_UP}test_a_new_leader_waits_until_it_knows_what_was_published_before",),
    ),
    Mutant(
        "catching up does not list vpods",
        _INFORMERS,
        "        await self._reach_pods()\n        await self.list_published()\n",
        "        await self._reach_pods()\n",
        "stale read: statuses of the leader before",
        (f"{_CATCHES_UP}test_a_new_leader_waits_until_it_knows_what_was_published_before",),
    ),
    Mutant(
        "catching up does not wait for pods",
        _INFORMERS,
        "        await self._reach_pods()\n        await self.list_published()\n",
        "        await self.list_published()\n",
        "stale read: ledgers of the leader before",
        (f"{_CATCHES_UP}test_a_new_leader_waits_until_the_watch_of_pods_is_not_behind",),
    ),
    Mutant(
        "a gap in the watch of pods lists no vpods",
        _INFORMERS,
        "self._vpods.request_relist()",
        "return",
        "the vpods' list must not be older than the pods'",
        (f"{_INFORMED}test_a_gap_in_the_pods_watch_lists_vpods_again_too",),
    ),
    Mutant(
        "vpods are listed before pods",
        _INFORMERS,
        "            await self._pods.synced.wait()\n",
        "",
        "a bind would give an ordinal what was published before its last ledger",
        (f"{_INFORMED}test_vpods_are_listed_after_pods",),
    ),
)
