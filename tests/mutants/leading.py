"""Breaks of leading: the lease, the fence, catching up, and the informers that all rely on."""

from tests.mutants.mutant import Mutant

_LEADER = "extender/kube/leader.py"
_SEEN = "extender/kube/seen_lease.py"
_INFORMERS = "extender/service/watching/informers.py"
_LEADERSHIP = "extender/service/pools/leadership.py"
_TEST = "tests/kube/test_leader.py::"
_SHARED = "tests/service/pools/test_leadership.py::"
_BUCKETS = "tests/service/test_buckets.py::"
_INFORMED = "tests/service/watching/test_informers.py::"
_CATCHES_UP = "tests/service/test_taking_over.py::"

LEADING = (
    Mutant(
        "the lease is written without compare-and-swap",
        _LEADER,
        'obj = {**current, "spec": {**mapping(current, "spec"), **spec}}',
        'metadata = {"namespace": lease.namespace, "name": lease.name}\n'
        '                obj = {"metadata": metadata, "spec": {**mapping(current, "spec"), '
        "**spec}}",
        "of two candidates both would get it",
        (
            "tests/kube/test_leader_race.py::test_of_two_that_see_the_lease_free_at_once_one_gets_it",
        ),
    ),
    Mutant(
        "the lease is judged by the clock of its holder",
        _SEEN,
        "return asyncio.get_running_loop().time() >= self._seen_at + self._lasts_s()",
        'at = __import__("datetime").datetime.fromisoformat(text(self.record, "spec", '
        '"renewTime"))\n'
        "        return self.began_at[1] >= at.timestamp() + self._lasts_s()",
        "no two machines' clocks agree",
        (f"{_TEST}test_anothers_clock_does_not_matter",),
    ),
    Mutant(
        "a lease that is held is taken",
        _SEEN,
        "            return not self.is_ours() and not self._expired()\n        if self",
        "            return False\n        if self",
        "two would lead",
        (f"{_TEST}test_of_two_candidates_one_leads_and_the_other_knows_who",),
    ),
    Mutant(
        "our name on the lease is enough",
        _SEEN,
        "return self.holder == self._identity and written",
        "return self.holder == self._identity",
        "a person may have put it there while another leads",
        (f"{_TEST}test_a_lease_that_somebody_has_put_our_name_on_is_taken_when_it_has_run_out",),
    ),
    Mutant(
        "a lease never expires",
        _SEEN,
        'if not self.record or mapping(found, "spec") != mapping(self.record, "spec"):\n           '
        " self._seen_at",
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
        "                        await self._put_released()\n                        return\n",
        "                        return\n",
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
        "                if not self._unanswered:\n                    with suppress(Conflict):\n",
        "                if self._stamps:\n                    with suppress(Conflict):\n",
        "a write cancelled on its way may have arrived: nobody would lead for 15 s",
        (f"{_TEST}test_cancelled_while_its_acquiring_write_is_on_the_way_it_gives_up_what_it_got",),
    ),
    Mutant(
        "a deleted lease is taken at once",
        _LEADER,
        "if not self.seen.may_make_one(self.still_leading):",
        "if False:",
        "two would lead until the one that did looks",
        (
            f"{_TEST}test_who_starts_just_after_a_lease_was_deleted_waits_until_its_holder_has_made_it_anew",
        ),
    ),
    Mutant(
        "who has held a lease before takes a deleted one at once",
        _SEEN,
        "if self.is_ours() and still_leading():",
        "if self.is_ours():",
        "it was paused, another one led meanwhile, and leads on until it looks",
        (
            f"{_TEST}test_who_was_paused_and_finds_no_lease_waits_for_whoever_has_taken_it_meanwhile",
        ),
    ),
    Mutant(
        "a lease that a person has emptied is taken at once",
        _SEEN,
        "return not self._is_free() and not still_leading() and not self._expired()",
        "return False",
        "two would lead until the one that did looks",
        (f"{_TEST}test_a_lease_whose_holder_is_taken_out_of_it_stays_with_its_holder",),
    ),
    Mutant(
        "an installed lease is free whatever is placed",
        _SEEN,
        "            and self._candidacy.nothing_written()\n        )",
        "        )",
        "it may have been applied again while its holder leads",
        (f"{_TEST}test_an_installed_lease_is_waited_for_where_a_leader_has_written_something",),
    ),
    Mutant(
        "an installed lease is free however young it is",
        _SEEN,
        "            and not is_newer(self.record, self._candidacy.first_version())\n",
        "",
        "it may have been applied again while its first holder leads",
        (f"{_TEST}test_an_installed_lease_that_is_younger_than_we_is_waited_for",),
    ),
    Mutant(
        "a pod is closed without which the pool would grow again",
        "extender/engine/scaling/scale_down.py",
        "        count = lasting_count(state, count, allows)\n    start",
        "    start",
        "it is closed, kept and opened again for ever",
        (
            "tests/engine/scaling/test_scale_down.py::"
            "test_a_pod_without_which_the_pool_would_grow_again_at_once_is_not_closed",
        ),
    ),
    Mutant(
        "what is to leave its pod waits for no closed one",
        "extender/engine/scaling/scale_down.py",
        "chain(state.vpods_with_pending, _to_leave(state))",
        "chain(state.vpods_with_pending)",
        "I3: a vreplica would stay on a pod taken for lost beside one with room",
        (
            "tests/engine/scaling/test_scale_down.py::test_one_that_is_to_leave_its_pod_and_fits_on_no_open_one_waits_for_a_closed_one",
        ),
    ),
    Mutant(
        "writes are not fenced",
        "extender/kube/fence.py",
        "if not self._leading():",
        "if self._leading is None:",
        "a process that was frozen goes on between what it has read and what it writes",
        ("tests/kube/test_fenced.py::test_no_pod_is_repaired",),
    ),
    Mutant(
        "the fence is not asked again before a write is sent",
        "extender/kube/connection.py",
        "        check_fence()\n",
        "",
        "a write waits for its lane or for a connection, and another leads when its turn comes",
        (
            "tests/kube/test_fence.py::test_a_write_that_has_waited_for_its_lane_is_not_sent_once_we_do_not_lead_any_more",
            "tests/kube/test_fence.py::test_a_write_that_has_waited_for_a_connection_is_not_sent_either",
        ),
    ),
    Mutant(
        "a refusal about one object pauses the lane of all",
        "extender/kube/transport.py",
        "        if not _is_about_an_object(raw):\n",
        "        if raw:\n",
        "one disruption budget stops all bindings",
        ("tests/kube/test_budget.py::test_a_refusal_about_one_object_holds_up_no_other",),
    ),
    Mutant(
        "requests for foreign kinds have no lane of their own",
        "extender/kube/budget.py",
        "        return Lane.FOREIGN\n",
        "        pass\n",
        "another API server that is overloaded stops all lists and watches",
        (
            "tests/kube/test_budget.py::"
            "test_an_api_server_of_a_foreign_kind_that_is_overloaded_holds_up_no_list",
        ),
    ),
    Mutant(
        "a new leader does not catch up",
        "extender/service/app.py",
        "await self.informers.catch_up()",
        "pass",
        "stale read: the leader before has written what our watch has not shown",
        (f"{_CATCHES_UP}test_a_new_leader_waits_until_it_knows_what_was_published_before",),
    ),
    Mutant(
        "catching up does not list vpods",
        _INFORMERS,
        "            await self._reach_pods()\n            await self.relist_all_vpods()\n",
        "            await self._reach_pods()\n",
        "stale read: statuses of the leader before",
        (f"{_CATCHES_UP}test_a_new_leader_waits_until_it_knows_what_was_published_before",),
    ),
    Mutant(
        "catching up does not wait for pods",
        _INFORMERS,
        "            await self._reach_pods()\n            await self.relist_all_vpods()\n",
        "            await self.relist_all_vpods()\n",
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
    Mutant(
        "later buckets are led however others count",
        _LEADERSHIP,
        "return is_recent and first.seen.announced_buckets == self._total",
        "return True",
        "while another number is rolled out a pool would have two leaders",
        (f"{_SHARED}test_while_another_number_of_buckets_is_rolled_out_no_pool_has_two_leaders",),
    ),
    Mutant(
        "how others count is believed for ever",
        _LEADERSHIP,
        "return is_recent and first.seen.announced_buckets == self._total",
        "return first.seen.announced_buckets == self._total",
        "who cannot read the first bucket's Lease would lead beside one who counts otherwise",
        (
            f"{_SHARED}test_who_cannot_read_how_others_count_stops_before_one_who_counts_otherwise_begins",
            f"{_SHARED}test_what_others_count_by_is_looked_at_when_it_acts_and_not_only_when_it_renews",
        ),
    ),
    Mutant(
        "who counts otherwise begins at once",
        _LEADER,
        "            self.acts_since += self._lease.duration_s\n",
        "",
        "those who count as before lead for some seconds more",
        (
            f"{_SHARED}test_who_cannot_read_how_others_count_stops_before_one_who_counts_otherwise_begins",
        ),
    ),
    Mutant(
        "who waits says its own number already",
        _LEADER,
        "buckets = 0 if self._is_unsettled() else self._candidacy.buckets",
        "buckets = self._candidacy.buckets",
        "those who count alike would lead at once by Leases of later buckets, and who follows "
        "would not wait",
        (
            f"{_SHARED}test_a_rollback_to_buckets_with_leases_released_long_ago_gives_no_pool_two_leaders",
            f"{_SHARED}test_who_counts_otherwise_waits_also_where_the_answer_to_its_first_write_was_lost",
            f"{_SHARED}test_who_follows_one_that_ended_while_it_waited_waits_itself",
        ),
    ),
    Mutant(
        "what others may have under way is counted from the Lease alone",
        _LEADERSHIP,
        "return asyncio.get_running_loop().time() >= elector.acts_since + UNDER_WAY_S",
        "return asyncio.get_running_loop().time() >= elector.leading_since + UNDER_WAY_S",
        "who led by another number of buckets led until later (I2)",
        (
            f"{_SHARED}test_who_led_by_another_number_may_have_something_under_way_for_as_long_as_any_leader",
        ),
    ),
    Mutant(
        "a question keeps a lease from being released",
        _LEADER,
        "                    with suppress(Conflict):\n                        await "
        "self._put_released()\n                        return\n",
        "                    await self._put_released()\n                    return\n",
        "its buckets would have no leader for 15 s",
        (f"{_SHARED}test_who_ends_just_after_it_was_asked_for_a_bucket_releases_its_lease",),
    ),
    Mutant(
        "callers are answered before it is known what was written before",
        "extender/service/http/schedule.py",
        "if not leadership.acts(pool):",
        "if not pool:",
        "stale read: what is decided then goes by ledgers and statuses of long ago",
        (
            "tests/service/test_taking_over.py::"
            "test_a_new_leader_answers_no_caller_before_it_knows_what_was_written_before",
        ),
    ),
    Mutant(
        "what callers asked of us before another led is decided again, or comes back with a pod",
        "extender/service/app.py",
        "        self.leadership.another_has_led = self.placer.forget\n",
        "",
        "ledgers would go below what the caller publishes by now (I2), or have what nobody takes "
        "back (I3)",
        (
            f"{_BUCKETS}test_what_a_caller_asked_of_us_before_another_led_is_not_gone_back_to",
            f"{_BUCKETS}test_who_leads_no_more_binds_pods_without_what_callers_have_asked_of_it",
        ),
    ),
    Mutant(
        "what callers asked is forgotten whenever the Lease is lost",
        _LEADERSHIP,
        "        self._left.add(bucket.index)\n",
        "        self._left.add(bucket.index)\n        self._another_has_led(bucket)\n",
        "I2: a pod that is bound meanwhile comes without what a caller publishes there",
        (
            f"{_BUCKETS}test_who_leads_again_with_nobody_in_between_remembers_what_callers_have_asked",
        ),
    ),
    Mutant(
        "a refused pod is forgotten for the one before it",
        "extender/service/binding/reactivator.py",
        "if pod.uid != refusal.shown:",
        "if refusal:",
        "it would wait for kube-scheduler's five minutes",
        (
            "tests/service/binding/test_reactivator.py::"
            "test_a_pod_refused_while_the_watch_shows_its_predecessor_is_patched_when_it_is_shown",
        ),
    ),
    Mutant(
        "what nobody knows of is still held when we lead again",
        "extender/service/placing/placer.py",
        "if _is_placers(owner):\n                    pool.release(owner, key)\n",
        "if _is_placers(owner):\n                    continue\n",
        "what another leader has placed there meanwhile is trimmed for it (I4)",
        (
            "tests/service/placing/test_placer.py::test_what_was_decided_and_nobody_knows_of_is_not_held_when_we_lead_again",
        ),
    ),
    Mutant(
        "what a pod is bound with is forgotten with the leadership",
        "extender/service/placing/placer.py",
        "return isinstance(owner, tuple) and owner[0] == PLACER",
        "return isinstance(owner, tuple)",
        "another would be promised what the pod is being bound with",
        (
            "tests/service/placing/test_placer.py::test_what_was_decided_and_nobody_knows_of_is_not_held_when_we_lead_again",
        ),
    ),
    Mutant(
        "what fails is not asked whether it is in doubt",
        "extender/service/placing/committer.py",
        "            self.status_doubts.look_again(key)\n",
        "            if key not in batch.failed:\n"
        "                self.status_doubts.look_again(key)\n",
        "a silent watch would cost minutes",
        (f"{_BUCKETS}test_a_status_that_is_refused_again_and_again_has_vpods_listed",),
    ),
    Mutant(
        "every bucket waits for pods by itself",
        "extender/service/watching/informers.py",
        "            if self._rounds.done >= wanted:\n                return\n",
        "",
        "a replica that takes many would read all pods as often",
        (f"{_BUCKETS}test_however_many_buckets_are_taken_at_once_pods_are_read_a_few_times",),
    ),
    Mutant(
        "a bucket is given to whoever asks",
        _LEADERSHIP,
        "return self._total > 1 and may_give(self._holders(), self._weights(), index, to)",
        "return True",
        "it would go to and fro",
        (f"{_SHARED}test_who_does_not_give_takes_the_question_off_the_lease",),
    ),
    Mutant(
        "a lease given up for one is anybody's",
        _SEEN,
        "        if self._is_kept():\n",
        "        if self._is_kept() is None:\n",
        "its former holder would take it again before the one that asked looks",
        (f"{_SHARED}test_replicas_share_the_buckets_evenly_and_leave_it_at_that",),
    ),
    Mutant(
        "whether it may lead is not asked when it acts",
        _LEADER,
        "            and self._candidacy.may_lead()\n            and asyncio",
        "            and asyncio",
        "after a pause that its own Lease has outlasted another may lead",
        (
            f"{_SHARED}test_what_others_count_by_is_looked_at_when_it_acts_and_not_only_when_it_renews",
        ),
    ),
    Mutant(
        "loops of a bucket run on while it is given away",
        _LEADER,
        "            await self._stop(leading, renewing)\n            if finished:",
        "            self.is_leader = False\n            if finished:",
        "two would run the same pool's loops",
        (f"{_SHARED}test_while_a_bucket_changes_hands_the_others_are_led_on",),
    ),
)
