"""Faults of admission: each one leaves out a check of a node's identity, or of a stranger's rights."""

from __future__ import annotations

from typing import Any

from mqproto.base.moment import Moment
from mqproto.manager.arriving import arrivals, insequence
from mqproto.manager.arriving.insequence import InSequence
from mqproto.manager.arriving.refusing import Refusing
from mqproto.manager.confirmations import Confirmations
from mqproto.manager.identifiers import Histories
from mqproto.manager.outbound import Outbound
from mqproto.manager.ownsequences import OwnSequences
from mqproto.neighbours import door
from mqproto.neighbours.calling import Neighbours
from mqproto.neighbours.door import Door
from mqproto.neighbours.met import Met
from mqproto.queues.rules import admission
from mqproto.queues.rules.admission import ELSEWHERE, NEIGHBOUR, NO_ROUTER
from mqproto.routing import Routes
from mqproto.session import Remote, Session
from mqproto.session.data import SessionData
from mqproto.wire import Guid, MessageClass
from tests.plants.planting import plant

# Who is who


@plant(Routes, "proves", "strangers_get_no_mail", "handed_out_as_it_was_sent")
def believe_every_guid(sound: Any) -> Any:
    """A node that presents the GUID of a known queue manager is believed to be that queue manager."""
    return lambda self, manager, host, certified: manager in self.peers


@plant(Routes, "brings", "handed_out_as_it_was_sent", "delivered_once_and_in_order")
def let_a_neighbour_bring_anything(sound: Any) -> Any:
    """A neighbour may bring messages in the name of any queue manager, even of one for which it is not a router."""
    return lambda self, neighbour, source, *, target, own: True


@plant(Door, "_limit_peer", "refusals_are_explained")
def count_claims_as_sessions_of_the_neighbour(sound: Any) -> Any:
    """Callers that merely present a neighbour's GUID use up the sessions that the neighbour may have."""

    def limit(self: Door, data: SessionData, manager: Guid) -> str | None:
        others = [
            session
            for session in self._sessions.values()
            if session.remote_qm == manager and session.is_accepted and session.key != data.key
        ]
        return "too many" if len(others) >= door.SESSIONS_OF_PEER else None

    return limit


# What leaves over which session


def _as_if_proven(session: Session, act: Any, *arguments: Any) -> Any:
    data, proven = session.data, session.data.proven
    data.proven = True
    try:
        return act(*arguments)
    finally:
        data.proven = proven


@plant(Neighbours, "_settle", "strangers_get_no_mail")
def adopt_the_session_of_a_stranger(sound: Any) -> Any:
    """A session that somebody opens with the GUID of a next hop is used for messages that wait for that next hop."""
    return lambda self, session, now: _as_if_proven(session, sound, self, session, now)


@plant(Neighbours, "_call", "strangers_get_no_mail")
def use_the_session_of_a_stranger(sound: Any) -> Any:
    """Instead of calling, a node uses any open session with the next hop's GUID, no matter who opened it."""

    def call(self: Neighbours, neighbour: Any, index: int, now: Moment) -> None:
        strange = [
            session
            for session in self._transports.sessions.values()
            if session.is_open and not session.is_proven
        ]
        for session in strange:
            session.data.proven = True
        sound(self, neighbour, index, now)
        for session in strange:
            session.data.proven = False

    return call


# What counts


@plant(Confirmations, "_order_ack", "nothing_is_retained", "all_is_accounted_for")
def believe_the_order_ack_of_a_stranger(sound: Any) -> Any:
    """An OrderAck counts if its source is the destination, whoever brings it."""
    return lambda self, body, source, remote, now: sound(
        self, body, source, remote._replace(is_proven=True), now
    )


@plant(
    Confirmations,
    "_final_ack",
    "endings_have_reasons",
    "nothing_is_retained",
    "all_is_accounted_for",
    "gaps_are_bridged",
)
def believe_the_final_ack_of_a_stranger(sound: Any) -> Any:
    """A FinalAck counts if its source is the destination, whoever brings it."""
    return lambda self, body, message, packet, remote, now: sound(
        self, body, message, packet, remote._replace(is_proven=True), now
    )


@plant(Confirmations, "_final_ack", "endings_have_reasons", "all_is_accounted_for", "nothing_is_retained")
def believe_a_stranger_that_a_message_went_too_far(sound: Any) -> Any:
    """Anybody, not only a known node, may report that a message has crossed too many hops."""

    def final_ack(
        self: Confirmations, body: Any, message: Any, packet: bytes, remote: Remote, now: Moment
    ) -> None:
        went_too_far = message.properties.message_class == MessageClass.NACK_HOP_COUNT_EXCEEDED
        sound(self, body, message, packet, remote._replace(is_proven=remote.is_proven or went_too_far), now)

    return final_ack


@plant(
    OwnSequences,
    "speaks_for",
    "all_is_accounted_for",
    "gaps_are_bridged",
    "nothing_is_retained",
    "whereabouts_tell_the_truth",
)
def let_any_neighbour_confirm(sound: Any) -> Any:
    """An acknowledgment from any source counts if a neighbour brings it."""
    return lambda self, sequence, source, remote: remote.is_proven


@plant(Outbound, "may_answer", "nothing_is_retained")
def answer_strangers_wherever_they_say(sound: Any) -> Any:
    """A stranger is answered at whatever host it names."""
    return lambda self, host: host is not None


@plant(Histories, "of", "all_is_accounted_for", "nothing_is_retained")
def remember_what_strangers_send_as_their_names_say(sound: Any) -> Any:
    """A stranger's MessageIDs are put into the history of known queue managers."""
    return lambda self, remote: self.known


# What a stranger may send


@plant(
    arrivals,
    "standing",
    "handed_out_as_it_was_sent",
    "delivered_once_and_in_order",
    "order_acks_leave_no_gap",
)
def let_a_claim_begin_sequences(sound: Any) -> Any:
    """A node that presents the GUID of a known queue manager may send messages that affect that queue manager."""
    return lambda *arguments, **others: sound(*arguments, **{**others, "claims": False})


@plant(arrivals, "standing", "handed_out_as_it_was_sent")
def let_strangers_speak_in_any_name(sound: Any) -> Any:
    """The source of a stranger's message is not compared with the GUID that the stranger presents."""
    return lambda head, manager, *arguments, **others: sound(
        head, head.source_queue_manager, *arguments, **others
    )


@plant(arrivals, "standing", "handed_out_as_it_was_sent")
def open_every_queue_to_strangers(sound: Any) -> Any:
    """A queue accepts strangers' messages, although nobody has permitted that."""
    return lambda *arguments, **others: sound(*arguments, **{**others, "is_invited": True})


@plant(admission, "RULES", "forwarded_as_it_came", "refusals_are_explained")
def forward_what_strangers_send(sound: Any) -> Any:
    """A stranger's message for another queue manager is passed on as if it came from a neighbour."""
    passed_on = {
        case: sound[NEIGHBOUR, *case[1:]] for case in sound if ELSEWHERE in case and case[0] is not NO_ROUTER
    }
    return {**sound, **passed_on}


@plant(InSequence, "arrived", "nothing_is_retained")
def hold_what_strangers_send_early(sound: Any) -> Any:
    """A stranger's message that comes after a gap is held until the gap is closed, which never happens."""
    return lambda self, queue, run, remote, now: sound(self, queue, run, remote._replace(is_proven=True), now)


# Who was met


@plant(Met, "seen", "what_was_lost_is_sent_again", "nothing_is_retained")
def believe_nobody_who_was_not_declared(sound: Any) -> Any:
    """A GUID that nobody has declared is not believed, even if it comes from where it was met before."""
    return lambda *arguments, **called: False


@plant(Met, "expect_answers", "replies_are_complete", "nothing_is_retained")
def never_call_again_for_answers(sound: Any) -> Any:
    """The nodes that were asked for an answer are not stored, so after a restart nobody calls them for it."""
    return lambda *arguments: None


@plant(Met, "hop_to", "what_was_lost_is_sent_again", "nothing_is_retained")
def have_no_way_to_those_who_were_met(sound: Any) -> Any:
    """Messages for the GUID of an undeclared node never leave."""
    return lambda self, manager: ()


# What strangers sent stays known


@plant(
    insequence,
    "returning",
    "delivered_once_and_in_order",
    "handed_out_as_it_was_sent",
    "delivery_counts_are_true",
    also=(arrivals,),
)
def forget_who_gave_up_a_place(sound: Any) -> Any:
    """The accepted messages of a sequence are forgotten once another sequence has taken its place in memory."""
    return lambda rows, queue, name, header: None


@plant(Refusing, "_may_tell", "all_is_accounted_for", "nothing_is_retained")
def tell_strangers_nothing(sound: Any) -> Any:
    """The end of a stranger's transactional message is not reported, so its sender repeats it forever."""
    return lambda self, remote, now: False


@plant(InSequence, "_place_given_up", "memory_is_bounded")
def give_up_no_place(sound: Any) -> Any:
    """Each sequence of a stranger gets a place in memory, however many sequences there are."""
    return lambda self, source, remote: 0


@plant(Door, "_make_room", "memory_is_bounded")
def keep_whatever_strangers_begin(sound: Any) -> Any:
    """There is no limit on strangers' unfinished packets."""
    return lambda self: iter(())
