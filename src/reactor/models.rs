//! Models of what the threads that wait, look and enqueue share. Explored in full unless the model
//! says that only so many preemptions are.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::thread;

use super::*;
use crate::driver::DriverError;
use crate::driver::model::ModelDriver;
use crate::error::{Error, Result};
use crate::sync::atomic::{AtomicBool, Ordering::*};
use crate::sync::explore;

const WORK: OpKey = OpKey::of(&Operation::kernel("work"));

/// A device with one lane, turned by hand.
struct Modelled {
    driver: Arc<ModelDriver>,
    reactor: Arc<Reactor>,
    lane: Arc<Lane>,
    /// What the device writes before its end is seen.
    written: UnsafeCell<()>,
}

impl Modelled {
    fn open() -> Arc<Self> {
        let driver = ModelDriver::new();
        let options = ReactorOptions {
            device: 0,
            inline_spin: Duration::ZERO,
            by_hand: true,
            hook: Default::default(),
        };
        let reactor = Reactor::new(driver.clone(), options);
        reactor.turned_by(Some(Waker::noop().clone()));
        reactor.make_events(2).unwrap();
        let id = LaneId::new(0, 0);
        let options = LaneOptions { id, role: StreamRole::Task, priority: 0, queue_limit: 100 };
        let lane = Lane::open(&reactor, options).unwrap();
        Arc::new(Modelled { driver, reactor, lane, written: UnsafeCell::new(()) })
    }

    /// Puts one operation onto the stream. Its number.
    fn enqueue(&self, held: Held) -> u64 {
        let mut enqueue = self.lane.enqueue(WORK, 1).unwrap();
        enqueue.take_ticket();
        self.driver.work("work", [], enqueue.stream()).unwrap();
        enqueue.finish(Recording::Lazy, held)
    }

    /// The device does what there is to do.
    fn run(&self) {
        self.written.with_mut(|_| {});
        self.driver.run(self.lane.stream_id());
    }

    /// Reads what the device wrote: loom objects where the thread cannot be sure to see it.
    fn read(&self) {
        self.written.with(|_| {});
    }
}

/// A waker that tells whether it was woken.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Release);
    }
}

impl Flag {
    fn is_set(&self) -> bool {
        self.0.load(Acquire)
    }
}

/// A future that was polled once, and who it wakes.
struct Polled {
    completion: Completion,
    verdict: Poll<Result<()>>,
    flag: Arc<Flag>,
}

impl Polled {
    fn once(mut completion: Completion) -> Self {
        let flag = Arc::new(Flag::default());
        let waker = Waker::from(flag.clone());
        let verdict = Pin::new(&mut completion).poll(&mut Context::from_waker(&waker));
        Polled { completion, verdict, flag }
    }

    fn was_told(&self) -> bool {
        self.verdict.is_ready() || self.flag.is_set()
    }
}

/// Runs both, each on a thread.
fn beside<R: 'static>(here: impl FnOnce() -> R, there: impl FnOnce() + 'static) -> R {
    let there = thread::spawn(there);
    let result = here();
    there.join().unwrap();
    result
}

/// Up to 3 preemptions.
#[test]
fn who_polls_while_the_end_is_seen_is_woken_or_sees_it() {
    explore(Some(3), || {
        let m = Modelled::open();
        let seq = m.enqueue(Held::No);
        m.lane.request_record(seq);
        let (m2, seen) = (m.clone(), Arc::new(AtomicBool::new(false)));
        let tell = seen.clone();
        let polled = beside(
            || {
                let polled = Polled::once(m.lane.completion(seq));
                if polled.was_told() {
                    m.read();
                }
                polled
            },
            move || {
                m2.run();
                tell.store(m2.lane.probe(seq), Relaxed);
            },
        );
        if !seen.load(Relaxed) {
            // It was left to the poll, which asks once too, and may have asked before the end.
            m.reactor.turn();
        }
        assert!(polled.was_told());
        assert_eq!(m.lane.lowest_waited(), None, "one who was told waits no more");
    });
}

/// Another waiter has the lane looked after already. Up to 3 preemptions.
#[test]
fn who_polls_while_the_reactor_is_turned_is_woken_by_that_turn_or_the_next() {
    explore(Some(3), || {
        let m = Modelled::open();
        let seq = m.enqueue(Held::No);
        let other = Polled::once(m.lane.completion(seq));
        let m2 = m.clone();
        let polled = beside(
            || Polled::once(m.lane.completion(seq)),
            move || {
                m2.run();
                m2.reactor.turn();
            },
        );
        m.reactor.turn();
        assert!(polled.was_told() && other.was_told());
        assert_eq!(m.reactor.turn(), Turned::Idle, "nobody waits any more");
    });
}

/// Three threads. Up to 2 preemptions.
#[test]
fn both_who_poll_while_the_end_is_seen_are_woken_or_see_it() {
    explore(Some(2), || {
        let m = Modelled::open();
        let seq = m.enqueue(Held::No);
        m.lane.request_record(seq);
        let (m2, m3) = (m.clone(), m.clone());
        let seen = Arc::new(AtomicBool::new(false));
        let tell = seen.clone();
        let other = thread::spawn(move || {
            let polled = Polled::once(m3.lane.completion(seq));
            if polled.was_told() {
                m3.read();
            }
            polled
        });
        let polled = beside(
            || Polled::once(m.lane.completion(seq)),
            move || {
                m2.run();
                tell.store(m2.lane.probe(seq), Relaxed);
            },
        );
        let other = other.join().unwrap();
        if !seen.load(Relaxed) {
            // It was left to one of the polls, which ask once too, and may have asked before the end.
            m.reactor.turn();
        }
        assert!(polled.was_told() && other.was_told());
    });
}

/// Three threads, two of which look. Up to 2 preemptions.
#[test]
fn who_polls_while_two_threads_look_is_woken_by_one_of_them_or_the_next_turn() {
    explore(Some(2), || {
        let m = Modelled::open();
        let seq = m.enqueue(Held::No);
        m.lane.request_record(seq);
        let (m2, m3) = (m.clone(), m.clone());
        let looks = thread::spawn(move || {
            if m3.lane.probe(seq) {
                m3.read();
            }
        });
        let polled = beside(
            || Polled::once(m.lane.completion(seq)),
            move || {
                m2.run();
                m2.reactor.turn();
            },
        );
        looks.join().unwrap();
        m.reactor.turn();
        assert!(polled.was_told());
        assert_eq!(m.reactor.turn(), Turned::Idle);
    });
}

/// Up to 3 preemptions.
#[test]
fn a_completion_dropped_while_the_end_is_seen_leaves_no_waiter() {
    explore(Some(3), || {
        let m = Modelled::open();
        let seq = m.enqueue(Held::No);
        m.lane.request_record(seq);
        let m2 = m.clone();
        beside(
            || drop(Polled::once(m.lane.completion(seq)).completion),
            move || {
                m2.run();
                m2.lane.probe(seq);
            },
        );
        assert_eq!(m.lane.lowest_waited(), None);
        m.reactor.turn();
        assert_eq!(m.reactor.turn(), Turned::Idle, "the lane is let go");
    });
}

/// Up to 4 preemptions.
#[test]
fn who_polls_while_the_device_is_lost_is_woken_or_sees_it() {
    explore(Some(4), || {
        let m = Modelled::open();
        let seq = m.enqueue(Held::No);
        m.lane.request_record(seq);
        let m2 = m.clone();
        let polled = beside(
            || Polled::once(m.lane.completion(seq)),
            move || {
                m2.reactor.fail(DriverError::new("cuEventQuery", DriverError::LAUNCH_FAILED));
                m2.reactor.announce();
            },
        );
        assert!(polled.was_told());
        if let Poll::Ready(verdict) = &polled.verdict {
            assert!(matches!(verdict, Err(Error::DeviceLost(_))));
        }
    });
}

/// Three threads: whoever unlocks a lane announces what others have met. Up to 2 preemptions.
#[test]
fn who_polls_while_one_thread_loses_the_device_and_others_announce_it_is_woken_or_sees_it() {
    explore(Some(2), || {
        let m = Modelled::open();
        let seq = m.enqueue(Held::No);
        m.lane.request_record(seq);
        let (m2, m3) = (m.clone(), m.clone());
        let other = thread::spawn(move || m3.reactor.announce());
        let polled = beside(
            || Polled::once(m.lane.completion(seq)),
            move || {
                m2.reactor.fail(DriverError::new("cuEventQuery", DriverError::LAUNCH_FAILED));
                m2.reactor.announce();
            },
        );
        other.join().unwrap();
        assert!(polled.was_told());
    });
}

/// Up to 4 preemptions.
#[test]
fn who_finds_the_lane_taken_has_the_event_recorded_by_its_holder() {
    explore(Some(4), || {
        let m = Modelled::open();
        let seq = m.enqueue(Held::No);
        let m2 = m.clone();
        beside(
            || m.lane.request_record(seq),
            move || {
                m2.enqueue(Held::No);
            },
        );
        assert!(m.lane.recorded.load(Relaxed) >= seq);
    });
}

/// Up to 4 preemptions.
#[test]
fn who_finds_the_lane_taken_by_a_count_has_the_event_recorded() {
    explore(Some(4), || {
        let m = Modelled::open();
        let seq = m.enqueue(Held::No);
        let m2 = m.clone();
        beside(
            || m.lane.request_record(seq),
            move || {
                m2.lane.counted_in_flight();
            },
        );
        assert!(m.lane.recorded.load(Relaxed) >= seq);
    });
}

/// The wish is for a ticket that another thread has just been given. Up to 4 preemptions.
#[test]
fn a_wish_for_the_ticket_being_enqueued_is_for_an_event_after_it() {
    explore(Some(4), || {
        let m = Modelled::open();
        let m2 = m.clone();
        let wished = beside(
            || {
                let seq = m.lane.submitted();
                m.lane.request_record(seq);
                seq
            },
            move || {
                m2.enqueue(Held::No);
            },
        );
        assert!(m.lane.recorded.load(Relaxed) >= wished);
        m.run();
        assert!(wished == 0 || m.lane.probe(wished));
        m.driver.assert_ordered();
    });
}

#[test]
fn a_completion_dropped_beside_the_next_operation_does_not_let_go_of_that_ones() {
    explore(None, || {
        let m = Modelled::open();
        let first = m.enqueue(Held::Yes);
        let held = Completion::of_submission(m.lane.clone(), first);
        let m2 = m.clone();
        beside(
            || drop(held),
            move || {
                m2.enqueue(Held::Yes);
            },
        );
        let second = first + 1;
        assert_eq!(m.lane.tail_held.load(Relaxed), second);
        // So the next operation finds it held, and has the event recorded before it.
        m.enqueue(Held::No);
        assert_eq!(m.lane.recorded.load(Relaxed), second);
    });
}

/// One lists what is in flight, as for the report of a loss, while the other enqueues. Up to 3
/// preemptions.
#[test]
fn a_report_made_beside_a_submission_names_operations_of_their_own_tickets() {
    static OTHER: Operation = Operation::kernel("other");
    explore(Some(3), || {
        // There are two places for names: one operation is in flight, and one is enqueued.
        let m = Modelled::open();
        let first = m.enqueue(Held::No);
        m.lane.request_record(first);
        m.run();
        assert!(m.lane.probe(first));
        m.enqueue(Held::No);
        let m2 = m.clone();
        let listed = beside(
            || m.lane.progress.in_flight(),
            move || {
                let mut enqueue = m2.lane.enqueue(OpKey::of(&OTHER), 1).unwrap();
                enqueue.take_ticket();
                enqueue.finish(Recording::Lazy, Held::No);
            },
        );
        for named in listed {
            let name = if named.number == 3 { "other" } else { "work" };
            assert_eq!(named.operation.name(), name);
        }
    });
}
