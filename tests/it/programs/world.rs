//! What lines name, and what one line does.

use std::cell::RefCell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use headwater::{Completion, Device, DeviceBuffer, Error, Event, HostBuffer};

use super::model::{Memory, Model, Refusal, Target, counting};
use super::program::{
    BUFFERS, Buffer, Does, End, Fate, HELD, How, LENGTHS, Old, PINNED, Pinned, Work,
};
use crate::kernels::{add_u32, copy_u32, increment};

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

fn wrong<T>(what: String) -> Checked<T> {
    Err(Failed::Wrong(what))
}

/// Polls once, with the waker of whoever is polling.
pub(super) async fn polled<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx))).await
}

/// Everything that lines name.
pub(super) struct World<'a> {
    device: &'a Device,
    pub(super) refusals: bool,
    /// `None` while a task has it.
    pub(super) buffers: [Option<DeviceBuffer<u32>>; BUFFERS],
    /// `None` while a task has it.
    pub(super) pinned: [Option<HostBuffer<u32>>; PINNED],
    /// Of what a task has, as it was.
    model: Model,
    held: [Option<Completion>; HELD],
    /// Dropped when the program is over, and no sooner: what is leaked keeps its device going, and long
    /// runs open many.
    forgotten: Vec<Completion>,
    events: [Option<Event>; HELD],
}

/// What no task has: the runner has seen to it.
fn here<T>(slot: &mut Option<T>) -> &mut T {
    slot.as_mut().expect("no task has it")
}

impl<'a> World<'a> {
    pub(super) fn new(device: &'a Device, refusals: bool) -> Checked<Self> {
        let mut world = World {
            device,
            refusals,
            buffers: [const { None }; BUFFERS],
            pinned: [const { None }; PINNED],
            model: Model::new(LENGTHS[0]),
            held: [const { None }; HELD],
            forgotten: Vec::new(),
            events: [const { None }; HELD],
        };
        (0..BUFFERS).try_for_each(|x| world.replace(Buffer(x), LENGTHS[0], false))?;
        (0..PINNED).try_for_each(|p| world.replace_pinned(Pinned(p), LENGTHS[0]))?;
        Ok(world)
    }

    /// `None`: the driver refused, as it was told to.
    fn unless_refused<T>(&self, called: Result<T, Error>) -> Checked<Option<T>> {
        match called {
            Err(Error::Refused { .. }) if self.refusals => Ok(None),
            called => Ok(Some(called?)),
        }
    }

    /// What the driver refuses is done again.
    fn again<T>(&self, mut call: impl FnMut() -> Result<T, Error>) -> Checked<T> {
        loop {
            if let Some(done) = self.unless_refused(call())? {
                return Ok(done);
            }
        }
    }

    pub(super) fn replace(&mut self, Buffer(x): Buffer, len: usize, zeroed: bool) -> Checked {
        let new = self.again(|| match zeroed {
            true => self.device.zeros(len),
            false => self.device.alloc(len),
        })?;
        self.buffers[x] = Some(new);
        self.model.device[x] = match zeroed {
            true => Memory::of(vec![0; len]),
            false => Memory::unwritten(len),
        };
        Ok(())
    }

    pub(super) fn replace_pinned(&mut self, Pinned(p): Pinned, len: usize) -> Checked {
        self.pinned[p] = Some(self.again(|| self.device.alloc_host(len))?);
        self.model.pinned[p] = Memory::unwritten(len);
        Ok(())
    }

    fn put(&mut self, Buffer(x): Buffer, buffer: DeviceBuffer<u32>, elements: Vec<u32>) {
        self.buffers[x] = Some(buffer);
        self.model.write(Target::Device(x), elements);
    }

    fn enqueue(&mut self, work: Work) -> Checked<Option<Completion>> {
        match (self.call(work), self.model.outcome(work)) {
            (Ok(completion), Ok((target, elements))) => {
                self.model.write(target, elements);
                Ok(Some(completion))
            }
            (Err(Error::Uninitialised { .. }), Err(Refusal::Uninitialised))
            | (Err(Error::LengthMismatch { .. }), Err(Refusal::LengthMismatch))
            | (Err(Error::Requirement { .. }), Err(Refusal::Requirement)) => Ok(None),
            (Err(Error::Refused { .. }), _) if self.refusals => Ok(None),
            (Err(error), Ok(_)) => Err(error.into()),
            (Ok(_), Err(refusal)) => wrong(format!("{work} was taken: {refusal:?}")),
            (Err(error), Err(refusal)) => wrong(format!("{work}: {error}, and not {refusal:?}")),
        }
    }

    fn call(&mut self, work: Work) -> Result<Completion, Error> {
        match work {
            Work::Fill { x, value } => here(&mut self.buffers[x.0]).fill(value),
            Work::Increment { x } => increment(here(&mut self.buffers[x.0])),
            Work::Up { from, to, by_source } => {
                let (from, to) = (here(&mut self.pinned[from.0]), here(&mut self.buffers[to.0]));
                if by_source { from.copy_to(to) } else { to.copy_from(from) }
            }
            Work::Down { from, to, by_source } => {
                let (from, to) = (here(&mut self.buffers[from.0]), here(&mut self.pinned[to.0]));
                if by_source { from.copy_to(to) } else { to.copy_from(from) }
            }
            Work::CopyKernel { to, .. } | Work::Add { to, .. } | Work::Copy { to, .. } => {
                let mut target = self.buffers[to.0].take().expect("no task has it");
                let of = |x: Buffer| self.buffers[x.0].as_ref().expect("no task has it");
                let called = match work {
                    Work::CopyKernel { from, .. } => copy_u32(of(from), &mut target),
                    Work::Copy { from, by_source: true, .. } => of(from).copy_to(&mut target),
                    Work::Copy { from, .. } => target.copy_from(of(from)),
                    Work::Add { a, b, .. } => add_u32(of(a), of(b), &mut target),
                    _ => unreachable!("has no device buffer as a source"),
                };
                self.buffers[to.0] = Some(target);
                called
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
                world.buffers[x.0] = None;
            }
            world.replace(x, len, zeroed)
        }
        Does::AllocHost { p, len, old } => {
            let mut world = world.borrow_mut();
            if matches!(old, Old::DroppedBefore) {
                world.pinned[p.0] = None;
            }
            world.replace_pinned(p, len)
        }
        Does::Upload { x, len, value, end } => upload(world, x, counting(value, len), end).await,
        Does::ToVec { x, end } => to_vec(world, x, end).await,
        Does::Read { p, how } => read(world, p, how).await,
        Does::Write { p, value, how } => write(world, p, value, how).await,
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

async fn upload(world: &RefCell<World<'_>>, x: Buffer, data: Vec<u32>, end: End) -> Checked {
    let mut upload = world.borrow().device.upload(&data);
    let uploaded = match end {
        End::Drop => return Ok(()),
        End::PollAndDrop => match polled(&mut upload).await {
            Poll::Ready(uploaded) => uploaded,
            Poll::Pending => return Ok(()),
        },
        End::Await => {
            let old = world.borrow_mut().buffers[x.0].take();
            let uploaded = upload.await;
            world.borrow_mut().buffers[x.0] = old;
            uploaded
        }
    };
    let mut world = world.borrow_mut();
    if let Some(buffer) = world.unless_refused(uploaded)? {
        world.put(x, buffer, data);
    }
    Ok(())
}

pub(super) async fn to_vec(world: &RefCell<World<'_>>, x: Buffer, end: End) -> Checked {
    let expected = world.borrow().model.device[x.0].elements.clone();
    let mut reading = here(&mut world.borrow_mut().buffers[x.0]).to_vec();
    let read = match end {
        End::Drop => return Ok(()),
        End::PollAndDrop => match polled(&mut reading).await {
            Poll::Ready(read) => read,
            Poll::Pending => return Ok(()),
        },
        End::Await => reading.await,
    };
    check(world, x, read, expected)
}

/// Holds what was read against what the model had when it was asked for.
fn check<T: std::ops::Deref<Target = [u32]>>(
    world: &RefCell<World<'_>>,
    what: impl fmt::Display,
    read: Result<T, Error>,
    expected: Option<Vec<u32>>,
) -> Checked {
    match (read, expected) {
        (Ok(read), Some(expected)) if *read == expected => Ok(()),
        (Err(Error::Uninitialised { .. }), None) => Ok(()),
        (Err(Error::Refused { .. }), _) if world.borrow().refusals => Ok(()),
        (Ok(read), expected) => {
            wrong(format!("{what} was read as {:?}, and is {expected:?}", &*read))
        }
        (Err(error), Some(_)) => Err(error.into()),
        (Err(error), None) => wrong(format!("{what}, which nobody wrote: {error}")),
    }
}

pub(super) async fn read(world: &RefCell<World<'_>>, p: Pinned, how: How) -> Checked {
    let expected = world.borrow().model.pinned[p.0].elements.clone();
    // Kept from others while it is awaited.
    let buffer = world.borrow_mut().pinned[p.0].take().expect("no task has it");
    let checked = match how {
        How::Await => {
            let read = buffer.read().await;
            check(world, p, read, expected)
        }
        How::Block => check(world, p, buffer.blocking_read(), expected),
        How::Try => match buffer.try_read() {
            Err(Error::InFlight { .. }) => Ok(()),
            read => check(world, p, read, expected),
        },
        How::PollAndDrop => match polled(&mut buffer.read()).await {
            Poll::Ready(read) => check(world, p, read, expected),
            Poll::Pending => Ok(()),
        },
    };
    world.borrow_mut().pinned[p.0] = Some(buffer);
    checked
}

async fn write(world: &RefCell<World<'_>>, p: Pinned, value: u32, how: How) -> Checked {
    let mut buffer = world.borrow_mut().pinned[p.0].take().expect("no task has it");
    let elements = counting(value, buffer.len());
    let written = match how {
        How::Await => Some(buffer.write().await?),
        How::Block => Some(buffer.blocking_write()?),
        How::Try => match buffer.try_write() {
            Err(Error::InFlight { .. }) => None,
            written => Some(written?),
        },
        How::PollAndDrop => match polled(&mut buffer.write()).await {
            Poll::Ready(written) => Some(written?),
            Poll::Pending => None,
        },
    };
    let written = written.map(|mut bytes| bytes.copy_from_slice(&elements)).is_some();
    let mut world = world.borrow_mut();
    world.pinned[p.0] = Some(buffer);
    if written {
        world.model.write(Target::Pinned(p.0), elements);
    }
    Ok(())
}
