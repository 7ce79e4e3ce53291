//! What lines name, and what one line does.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use headwater::{Completion, Device, Error, Event, KernelError};

use super::dealt::own;
use super::host::{read, to_vec, upload, write};
use super::memory::{Held, Target, copy};
use super::model::{Memory, Model, Refusal, counting};
use super::names::{LENGTHS, Name, Operand, View};
use super::program::{Deal, Does, Fate, HELD, Old, Work};
use crate::kernels::{add_u32, copy_u32, increment, sum_rows};

/// How a program did not do what its model says.
pub(crate) enum Failed {
    Wrong(String),
    Error(Error),
}

pub(crate) type Checked<T = ()> = Result<T, Failed>;

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Failed::Error(error)
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failed::Wrong(what) => f.write_str(what),
            Failed::Error(error) => write!(f, "{error}"),
        }
    }
}

pub(super) fn wrong<T>(what: String) -> Checked<T> {
    Err(Failed::Wrong(what))
}

/// Polls once, with the waker of whoever is polling.
pub(super) async fn polled<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx))).await
}

/// Operations that were enqueued, by what they touch: one can be several of these.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kinds {
    pub(crate) of_slices: u64,
    pub(crate) of_tiles: u64,
    pub(crate) of_parts: u64,
    pub(crate) of_shared: u64,
}

/// What a program that ended as its model says has done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Came {
    pub(crate) kinds: Kinds,
    /// The elements that were read, wherever that was to be waited for, and in which line.
    pub(crate) read: Vec<(usize, Vec<u32>)>,
}

/// Everything that lines name.
pub(super) struct World<'a> {
    pub(super) device: &'a Device,
    pub(super) refusals: bool,
    /// What is there, and no task has.
    memory: BTreeMap<Name, Held>,
    /// Of what a task has, as it was.
    pub(super) model: Model,
    held: [Option<Completion>; HELD],
    /// Dropped when the program is over, and no sooner: what is leaked keeps its device going, and long
    /// runs open many.
    forgotten: Vec<Completion>,
    events: [Option<Event>; HELD],
    pub(super) came: Came,
    /// Which line runs.
    pub(super) at: usize,
}

impl<'a> World<'a> {
    pub(super) fn new(device: &'a Device, refusals: bool) -> Checked<Self> {
        let mut world = World {
            device,
            refusals,
            memory: BTreeMap::new(),
            model: Model::default(),
            held: [const { None }; HELD],
            forgotten: Vec::new(),
            events: [const { None }; HELD],
            came: Came::default(),
            at: 0,
        };
        for name in Name::all() {
            match name {
                Name::Buffer(x) => world.replace(name, LENGTHS[0], x < 3)?,
                Name::Pinned(_) => world.replace(name, LENGTHS[0], false)?,
                Name::Shared(_) => world.replace_shared(name, LENGTHS[0], true)?,
                Name::Part(0) | Name::PinnedPart(0) => {
                    world.deal(name, LENGTHS[0], true, Deal::Parts(2))?;
                }
                Name::Part(_) | Name::PinnedPart(_) => {}
            }
        }
        let (first, elements) = (Name::Pinned(0), counting(0, LENGTHS[0]));
        if let Some(Held::Pinned(buffer)) = world.memory.get_mut(&first) {
            buffer.try_write()?.copy_from_slice(&elements);
        }
        world.model.write(Operand::all(first), &elements);
        Ok(world)
    }

    pub(super) fn take(&mut self, name: Name) -> Option<Held> {
        self.memory.remove(&name)
    }

    pub(super) fn taken(&mut self, name: Name) -> Held {
        self.take(name).unwrap_or_else(|| panic!("no task has {name}, which is always there"))
    }

    pub(super) fn give(&mut self, name: Name, held: Held) {
        self.memory.insert(name, held);
    }

    pub(super) fn get(&self, name: Name) -> &Held {
        self.memory.get(&name).unwrap_or_else(|| panic!("no task has {name}, which is there"))
    }

    /// `None`: the driver refused, as it was told to.
    pub(super) fn unless_refused<T>(&self, called: Result<T, Error>) -> Checked<Option<T>> {
        match called {
            Err(Error::Refused { .. }) if self.refusals => Ok(None),
            called => Ok(Some(called?)),
        }
    }

    /// What the driver refuses is done again.
    pub(super) fn again<T>(&self, mut call: impl FnMut() -> Result<T, Error>) -> Checked<T> {
        loop {
            if let Some(done) = self.unless_refused(call())? {
                return Ok(done);
            }
        }
    }

    /// Memory for a name, and what is in it.
    pub(super) fn new_memory(
        &self,
        name: Name,
        len: usize,
        zeroed: bool,
    ) -> Checked<(Held, Memory)> {
        let device = self.device;
        Ok(match name {
            Name::Pinned(_) | Name::PinnedPart(_) => {
                let buffer = self.again(|| device.alloc_host(len))?;
                (Held::Pinned(buffer), vec![None; len])
            }
            _ if zeroed => (Held::Buffer(self.again(|| device.zeros(len))?), vec![Some(0); len]),
            _ => (Held::Buffer(self.again(|| device.alloc(len))?), vec![None; len]),
        })
    }

    /// A new buffer takes a name.
    pub(super) fn replace(&mut self, name: Name, len: usize, zeroed: bool) -> Checked {
        let (held, memory) = self.new_memory(name, len, zeroed)?;
        self.give(name, held);
        self.model.put(name, memory);
        Ok(())
    }

    /// What a task took went with it.
    pub(super) fn lost(&mut self, name: Name) -> Checked {
        match name {
            Name::Buffer(_) | Name::Pinned(_) => self.replace(name, LENGTHS[0], false),
            _ => {
                self.model.drop(name);
                Ok(())
            }
        }
    }

    fn enqueue(&mut self, work: Work) -> Checked<Option<Completion>> {
        let operands = work.operands();
        if !operands.iter().all(|operand| self.model.has(operand.of)) {
            return Ok(None);
        }
        let &to = operands.last().expect("what it writes");
        match (self.call(work), self.model.outcome(work)) {
            (Ok(completion), Ok(elements)) => {
                self.model.write(to, &elements);
                self.count(&operands);
                Ok(Some(completion))
            }
            (Err(Error::Uninitialised { .. }), Err(Refusal::Uninitialised))
            | (Err(Error::OutOfRange { .. } | Error::NotRows { .. }), Err(Refusal::NotThere))
            | (Err(Error::LengthMismatch { .. }), Err(Refusal::LengthMismatch))
            | (Err(Error::ShapeMismatch { .. }), Err(Refusal::ShapeMismatch))
            | (Err(Error::Kernel(KernelError::Requirement { .. })), Err(Refusal::Requirement)) => {
                Ok(None)
            }
            (Err(Error::Refused { .. }), _) if self.refusals => Ok(None),
            (Err(error), Ok(_)) => Err(error.into()),
            (Ok(_), Err(refusal)) => wrong(format!("{work} was taken: {refusal:?}")),
            (Err(error), Err(refusal)) => wrong(format!("{work}: {error}, and not {refusal:?}")),
        }
    }

    fn count(&mut self, operands: &[Operand]) {
        let any = |is: fn(&Operand) -> bool| u64::from(operands.iter().any(is));
        let kinds = &mut self.came.kinds;
        kinds.of_slices += any(|operand| matches!(operand.at, View::Slice(_)));
        kinds.of_tiles += any(|operand| matches!(operand.at, View::Tile { .. }));
        kinds.of_parts += any(|operand| matches!(operand.of, Name::Part(_) | Name::PinnedPart(_)));
        kinds.of_shared += any(|operand| matches!(operand.of, Name::Shared(_)));
    }

    fn call(&mut self, work: Work) -> Result<Completion, Error> {
        let &to = work.operands().last().expect("what it writes");
        let mut held = self.taken(to.of);
        let called = match work {
            Work::Copy { from, by_source, .. } if from.of == to.of => {
                held.split(from.at, to.at, |from, to| copy(from, to, by_source))
            }
            Work::CopyKernel { from, .. } if from.of == to.of => {
                held.split(from.at, to.at, |from, to| {
                    copy_u32(from.in_one_piece(), to.in_one_piece())
                })
            }
            Work::SumRows { from, .. } if from.of == to.of => {
                held.split(from.at, to.at, |from, to| sum_rows(from.in_rows(), to.in_rows()))
            }
            _ => held.target(to.at, |target| self.call_into(work, target)),
        };
        self.give(to.of, held);
        called
    }

    /// Work that reads other memory than it writes.
    fn call_into(&self, work: Work, target: Target<'_>) -> Result<Completion, Error> {
        let source = |from: Operand| self.get(from.of).source(from.at);
        match work {
            Work::Fill { value, .. } => target.fill(value),
            Work::Increment { .. } => increment(target.in_one_piece()),
            Work::CopyKernel { from, .. } => {
                copy_u32(source(from)?.in_one_piece(), target.in_one_piece())
            }
            Work::SumRows { from, .. } => sum_rows(source(from)?.in_rows(), target.in_rows()),
            Work::Copy { from, by_source, .. } => copy(source(from)?, target, by_source),
            Work::Add { a, b, .. } => {
                let (a, b) = (source(a)?.in_one_piece(), source(b)?.in_one_piece());
                add_u32(a, b, target.in_one_piece())
            }
        }
    }
}

/// Does one line's doing, from wherever it is polled.
pub(super) async fn execute(world: &RefCell<World<'_>>, does: Does) -> Checked {
    let device = world.borrow().device;
    match does {
        Does::Work(work, fate) => {
            let enqueued = world.borrow_mut().enqueue(work)?;
            match enqueued {
                Some(completion) => settle(world, completion, fate).await,
                None => Ok(()),
            }
        }
        Does::Alloc { x, len, zeroed, old } => {
            let mut world = world.borrow_mut();
            if matches!(old, Old::DroppedBefore) {
                drop(world.taken(x));
            }
            world.replace(x, len, zeroed)
        }
        Does::Upload { x, len, value, end } => upload(world, x, counting(value, len), end).await,
        Does::ToVec { x, end } => to_vec(world, x, end).await,
        Does::Read { p, how } => read(world, p, how).await,
        Does::Write { p, value, how } => write(world, p, value, how).await,
        Does::Rejoin { x, order, stranger, deal } => {
            world.borrow_mut().rejoin(x, order, stranger, deal)
        }
        Does::Deal { x, len, deal } => world.borrow_mut().deal(x, len, false, deal),
        Does::DropPart { part } => {
            let mut world = world.borrow_mut();
            drop(world.take(part));
            world.model.drop(part);
            Ok(())
        }
        Does::Own { part, value } => own(world, part, value).await,
        Does::Share { x, shared } => world.borrow_mut().share(x, shared),
        Does::CloneShared => world.borrow_mut().clone_shared(),
        Does::AllocShared { shared, len, zeroed } => {
            world.borrow_mut().replace_shared(shared, len, zeroed)
        }
        Does::Record { event } => {
            let mut world = world.borrow_mut();
            let recorded = world.unless_refused(device.current_stream().record())?;
            if recorded.is_some() {
                world.events[event] = recorded;
            }
            Ok(())
        }
        Does::WaitFor { event } => {
            let world = world.borrow();
            let waited = world.events[event].as_ref().map(|e| device.current_stream().wait(e));
            world.unless_refused(waited.unwrap_or(Ok(()))).map(drop)
        }
        Does::AwaitEvent { event } => {
            let event = world.borrow().events[event].clone();
            if let Some(event) = event {
                event.await?;
            }
            Ok(())
        }
        Does::AwaitHeld { held } => {
            let held = world.borrow_mut().held[held].take();
            if let Some(held) = held {
                held.await?;
            }
            Ok(())
        }
        Does::AskHeld { held } => {
            if let Some(held) = &world.borrow().held[held] {
                held.is_finished()?;
            }
            Ok(())
        }
        Does::DropHeld { held } => {
            world.borrow_mut().held[held] = None;
            Ok(())
        }
        Does::Synchronize => {
            let all = device.current_stream().synchronize();
            Ok(all.await?)
        }
        Does::PollTask { .. } | Does::AbortTask { .. } | Does::Refuse { .. } => {
            unreachable!("the runner does these")
        }
    }
}

async fn settle(world: &RefCell<World<'_>>, mut completion: Completion, fate: Fate) -> Checked {
    match fate {
        Fate::Drop => drop(completion),
        Fate::Await => completion.await?,
        Fate::Hold(held) => world.borrow_mut().held[held] = Some(completion),
        Fate::Poll => drop(polled(&mut completion).await),
        Fate::PollAndHold(held) => {
            let _ = polled(&mut completion).await;
            world.borrow_mut().held[held] = Some(completion);
        }
        Fate::Forget => world.borrow_mut().forgotten.push(completion),
    }
    Ok(())
}
