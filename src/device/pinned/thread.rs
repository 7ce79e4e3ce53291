//! The thread that frees, registers and unregisters page-locked memory: all calls that take long or wait for
//! running kernels.
//!
//! It is started by the first job and ends when there is none left. It holds no device open: what it needs
//! of one are the pool, the reactor, and the lanes that it waits for.

use std::collections::VecDeque;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use smallvec::SmallVec;

use super::PinnedPool;
use super::answer::Told;
use super::block::{PinnedBlock, VecMemory};
use crate::driver::stay;
use crate::error::{Error, Result};
use crate::reactor::{Completion, Reactor};

/// What became of memory that was to be registered.
pub(crate) type Registered = Result<PinnedBlock, (VecMemory, Error)>;
/// What became of memory that was to be unregistered.
pub(crate) type Unregistered = Result<VecMemory, (PinnedBlock, Error)>;

#[derive(Debug)]
pub(super) enum Job {
    /// Idle blocks are to be freed until `keep` bytes are left. Nobody is told where it is for the pool's own
    /// sake.
    Trim {
        keep: usize,
        told: Option<Told<Result<usize>>>,
    },
    Register {
        memory: VecMemory,
        told: Told<Registered>,
    },
    Unregister(Leaving),
}

/// Registered memory that is to be its owner's again.
#[derive(Debug)]
pub(super) struct Leaving {
    pub(super) block: PinnedBlock,
    /// What may still touch it.
    pub(super) users: SmallVec<[Completion; 2]>,
    /// Who wants it; it is dropped where nobody does.
    pub(super) told: Option<Told<Unregistered>>,
}

/// What there is to do, and whether somebody does it.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    queue: VecDeque<Job>,
    /// A thread looks after the queue, and looks again before it ends.
    running: bool,
    /// That thread, while it sleeps.
    asleep: Option<Thread>,
    /// Some of what is idle is to be freed for a request that there was no room for.
    pub(super) making_room: bool,
}

impl Jobs {
    /// Registered memory that no thread has taken over yet.
    pub(super) fn drain(&mut self) -> Vec<PinnedBlock> {
        let mut blocks = Vec::new();
        for job in mem::take(&mut self.queue) {
            match job {
                Job::Unregister(Leaving { block, told: None, .. }) => blocks.push(block),
                job => self.queue.push_back(job),
            }
        }
        blocks
    }
}

enum Next {
    Job(Job),
    Sleep,
    End,
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl PinnedPool {
    /// Has the thread do it. Where there is none to be had, whoever is to be told is told so.
    pub(super) fn submit(self: &Arc<Self>, reactor: &Arc<Reactor>, job: Job) {
        let mut state = self.state.lock();
        state.jobs.queue.push_back(job);
        let asleep = state.jobs.asleep.take();
        let is_first = !mem::replace(&mut state.jobs.running, true);
        drop(state);
        if let Some(thread) = asleep {
            thread.unpark();
        }
        if !is_first {
            return;
        }
        let (pool, of) = (self.clone(), reactor.clone());
        let thread = thread::Builder::new().name(format!("headwater-{}-pinned", self.device));
        if let Err(error) = thread.spawn(move || pool.work(&of)) {
            self.not_started(reactor, &Error::Thread(Arc::new(error)));
        }
    }

    /// Answers what was asked for; memory that is to be unregistered waits for the next job.
    fn not_started(&self, reactor: &Reactor, error: &Error) {
        let mut state = self.state.lock();
        state.jobs.running = false;
        state.jobs.making_room = false;
        let jobs = mem::take(&mut state.jobs.queue);
        drop(state);
        let mut left = VecDeque::new();
        for job in jobs {
            match job {
                Job::Trim { told, .. } => drop(told.map(|told| told.tell(Err(error.clone())))),
                Job::Register { memory, told } => drop(told.tell(Err((memory, error.clone())))),
                Job::Unregister(leaving) => left.extend(self.refused(reactor, leaving, error)),
            }
        }
        let mut state = self.state.lock();
        left.append(&mut state.jobs.queue);
        state.jobs.queue = left;
    }

    /// Tells whoever wants the memory; the job again, where nobody does.
    fn refused(&self, reactor: &Reactor, leaving: Leaving, error: &Error) -> Option<Job> {
        let Leaving { block, users, told } = leaving;
        let block = match told {
            None => block,
            Some(told) => match told.tell(Err((block, error.clone()))) {
                Err(Err((block, _))) => block,
                _ => return None,
            },
        };
        reactor.hook().not_released(|| block.describe(), error.clone());
        Some(Job::Unregister(Leaving { block, users, told: None }))
    }

    fn next(&self, may_end: bool) -> Next {
        let jobs = &mut self.state.lock().jobs;
        match jobs.queue.pop_front() {
            Some(job) => Next::Job(job),
            None if may_end => {
                jobs.running = false;
                Next::End
            }
            None => {
                jobs.asleep = Some(thread::current());
                Next::Sleep
            }
        }
    }

    fn work(&self, reactor: &Arc<Reactor>) {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut cx = Context::from_waker(&waker);
        // Wait for what may still touch them.
        let mut leaving: Vec<Leaving> = Vec::new();
        loop {
            for mut each in mem::take(&mut leaving) {
                match poll_users(&mut each, &mut cx) {
                    Poll::Pending => leaving.push(each),
                    Poll::Ready(ended) => self.let_go(reactor, each, ended),
                }
            }
            match self.next(leaving.is_empty()) {
                Next::Job(Job::Trim { keep, told }) => {
                    let freed = self.free_beyond(reactor, keep);
                    match told {
                        Some(told) => drop(told.tell(freed)),
                        None => self.state.lock().jobs.making_room = false,
                    }
                }
                Next::Job(Job::Register { memory, told }) => self.page_lock(reactor, memory, told),
                Next::Job(Job::Unregister(job)) => leaving.push(job),
                Next::Sleep => thread::park(),
                Next::End => return,
            }
        }
    }

    /// Frees idle blocks until `keep` bytes are left. How many went.
    fn free_beyond(&self, reactor: &Reactor, keep: usize) -> Result<usize> {
        reactor.check()?;
        let mut freed = 0;
        let again = self.state.lock().ledger.take_unreleased();
        for block in again {
            freed += self.free(reactor, block);
        }
        loop {
            let block = self.state.lock().ledger.take_beyond(keep);
            let Some(block) = block else { break };
            freed += self.free(reactor, block);
        }
        reactor.announce();
        reactor.check()?;
        Ok(freed)
    }

    /// How many bytes were freed: all of an idle block, or none.
    fn free(&self, reactor: &Reactor, block: PinnedBlock) -> usize {
        let (bytes, what) = (block.bytes(), block.describe());
        let given = {
            let _stay = stay();
            block.give_back(&**reactor.driver())
        };
        match given {
            Ok(_) => {
                self.state.lock().ledger.freed(bytes);
                bytes
            }
            Err((block, cause)) => {
                self.state.lock().ledger.is_unreleased(block);
                let why = reactor.refused("freeing pinned memory", cause);
                reactor.hook().not_released(|| what, why);
                0
            }
        }
    }

    fn page_lock(&self, reactor: &Reactor, memory: VecMemory, told: Told<Registered>) {
        let registered = {
            let _stay = stay();
            PinnedBlock::register(&**reactor.driver(), memory)
        };
        let answer = match registered {
            Ok(block) => {
                self.state.lock().ledger.registered(block.bytes());
                Ok(block)
            }
            Err((memory, cause)) => {
                Err((memory, reactor.refused("registering memory of the program", cause)))
            }
        };
        reactor.announce();
        if let Err(Ok(block)) = told.tell(answer) {
            // Nobody waits for it any more.
            let leaving = Leaving { block, users: SmallVec::new(), told: None };
            self.let_go(reactor, leaving, Ok(()));
        }
    }

    /// `ended`: how its last users did. On a lost device it stays registered, and is not used again.
    fn let_go(&self, reactor: &Reactor, leaving: Leaving, ended: Result<()>) {
        let Leaving { block, told, .. } = leaving;
        let bytes = block.bytes();
        let given = match ended {
            Err(error) => Err((block, error)),
            Ok(()) => {
                let _stay = stay();
                let given = block.give_back(&**reactor.driver());
                given.map_err(|(block, cause)| {
                    (block, reactor.refused("unregistering memory of the program", cause))
                })
            }
        };
        reactor.announce();
        let answer = match given {
            Ok(memory) => {
                self.state.lock().ledger.unregistered(bytes);
                let Some(memory) = memory else { return };
                Ok(memory)
            }
            Err(refused) => Err(refused),
        };
        let answer = match told {
            Some(told) => told.tell(answer),
            None => Err(answer),
        };
        if let Err(Err((block, error))) = answer {
            reactor.hook().not_released(|| block.describe(), error);
        }
    }
}

/// Ready when nothing touches it any more, or nobody will ever know.
fn poll_users(leaving: &mut Leaving, cx: &mut Context<'_>) -> Poll<Result<()>> {
    let _stay = stay();
    while let Some(user) = leaving.users.last_mut() {
        match Pin::new(user).poll(cx) {
            Poll::Ready(Ok(())) => drop(leaving.users.pop()),
            other => return other,
        }
    }
    Poll::Ready(Ok(()))
}
