"""Strangers' places: the stranger that has the most places gives up the one that it has not used for the longest
time.
"""

from __future__ import annotations

from hypothesis import given, strategies as st

from mqproto.base.configuration import Settings
from mqproto.base.moment import Moment
from mqproto.base.timers import Timers
from mqproto.transfer.incoming import IncomingSequence
from mqproto.transfer.places import StrangersPlaces
from tests.pair import guid_of

NOW = Moment(50_000, 1_700_000_000)
HOSTS = st.sampled_from(("192.0.2.1", "192.0.2.2"))
SEQUENCES = st.integers(0, 7)


@given(used=st.lists(st.tuples(SEQUENCES, HOSTS), min_size=1, max_size=40), new=st.tuples(SEQUENCES, HOSTS))
def test_the_host_and_then_the_queue_manager_with_the_most_gives_up_its_place_of_longest_ago(
    used: list[tuple[int, str]], new: tuple[int, str]
) -> None:
    sequences = [
        IncomingSequence((guid_of("ab"[number % 2]), number, 16), 2, Settings(), Timers(), NOW)
        for number in range(8)
    ]
    places, last = StrangersPlaces(), dict[int, str]()
    for number, host in used:
        places.take(sequences[number], host)
        last = {each: at for each, at in last.items() if each != number} | {number: host}
    host_of_new, source_of_new = new[1], new[0] % 2

    given_up = sequences.index(places.give_up(host_of_new, guid_of("ab"[source_of_new]))[0])

    hosts = [*last.values(), host_of_new]
    assert hosts.count(last[given_up]) == max(map(hosts.count, last.values()))
    sources = [each % 2 for each in last if last[each] == last[given_up]] + [source_of_new]
    assert sources.count(given_up % 2) == max(
        sources.count(each % 2) for each in last if last[each] == last[given_up]
    )
    rivals = [each for each in last if (each % 2, last[each]) == (given_up % 2, last[given_up])]
    assert given_up == rivals[0]
    assert len(places) == len(last) - 1
