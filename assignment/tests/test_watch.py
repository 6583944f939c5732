"""`--watch`: what a save sets off, how fast, and what cannot end it."""

import json
import os
import socket
import threading

import pytest

from assignment.grading.pool import FATAL, FUNCTIONS, Pool, no_deaths
from assignment.grading.sandbox import Worker


def test_an_answer_to_somebody_else_is_passed_over():
    """A judge that was killed left it in the socket that all judges of the worker share"""
    worker, (ours, theirs) = Worker.__new__(Worker), socket.socketpair(type=socket.SOCK_SEQPACKET)
    worker._control = ours
    theirs.sendall(json.dumps({"strays": ["of another"], "number": 1}).encode())

    def answer():
        message = json.loads(theirs.recv(1 << 16))
        theirs.sendall(json.dumps({"strays": [], "number": message["number"]}).encode())

    thread = threading.Thread(target=answer)
    thread.start()
    assert worker._supervisor("strays")["strays"] == []
    thread.join()


@pytest.fixture
def pool():
    """A pool without workers."""
    pool = Pool.__new__(Pool)
    pool._deaths, pool._closed, pool._owner = no_deaths(), False, os.getpid()
    pool.workers, pool._simulator, pool._compiler = [], None, None
    return pool


def test_a_forked_process_leaves_the_pool_to_its_maker(pool):
    closed = []
    pool.stage = type("Stage", (), {"close": lambda self: closed.append(1)})()
    pool._owner = os.getppid()
    pool.close()
    assert not closed
    pool._owner = os.getpid()
    pool.close()
    assert closed


def test_a_lock_that_a_killed_judge_held_stops_nobody(pool):
    pool.stage = type("Stage", (), {"replace": lambda self, submission: None})()
    pool.unsimulated = pool.uncompiled = pool.tried_dry = set()
    for _ in range(2):
        pool.died(FUNCTIONS[0], FATAL[0])
    pool._deaths.get_lock().acquire()
    pool.replace(None, 1)
    assert pool.given_up(FUNCTIONS[0]) is None
