//! Runs a program on a device beside its model.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use headwater::sim::Fault;
use headwater::{Device, DriverError, Stream, block_on};

use super::host::{read, to_vec};
use super::names::{Name, Operand};
use super::program::{Does, End, How, Line, Place, Program, STREAMS, TASKS};
use super::world::{Came, Checked, World, execute, polled};
use crate::common::{poll_once, sim, wait};

/// Who has the device go on while the program waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// The library's thread looks after what is awaited.
    ForReactor,
    /// The thread of the program looks itself: nothing depends on when other threads run.
    InThread,
}

impl Waiting {
    /// Runs a future to its end.
    fn drive<T>(self, future: impl Future<Output = T>) -> T {
        match self {
            Waiting::InThread => block_on(future),
            Waiting::ForReactor => wait(future),
        }
    }

    fn poll<F: Future + Unpin>(self, future: &mut F) -> Poll<F::Output> {
        match self {
            // With the waker of `block_on`, which leaves the library's thread out of it.
            Waiting::InThread => block_on(polled(future)),
            Waiting::ForReactor => poll_once(future),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) waiting: Waiting,
    /// Lines that have the driver refuse calls do so; what was refused did nothing.
    pub(crate) refusals: bool,
}

/// Runs a program to its end and reads everything.
pub(crate) fn run(device: &Device, program: &Program, settings: Settings) -> Checked<Came> {
    let world = RefCell::new(World::new(device, settings.refusals)?);
    let streams: Vec<_> = (0..STREAMS).map(|_| device.stream()).collect();
    let tasks = (0..TASKS).map(|_| Task::start(&world, device)).collect();
    let mut runner = Runner { device, settings, world: &world, streams, tasks };
    for (at, line) in program.lines.iter().enumerate() {
        world.borrow_mut().at = at;
        runner.line(line)?;
    }
    if settings.refusals {
        sim(device).clear_faults();
    }
    runner.read_all(program.lines.len())?;
    drop(runner);
    Ok(world.into_inner().came)
}

/// An async task that does lines as they come, in a scope of its own.
struct Task<'w> {
    inbox: Rc<Inbox>,
    future: Pin<Box<dyn Future<Output = Checked> + 'w>>,
}

#[derive(Default)]
struct Inbox {
    next: Cell<Option<Does>>,
    /// What the task is at.
    doing: RefCell<Option<Does>>,
}

impl Inbox {
    fn is_busy(&self) -> bool {
        self.doing.borrow().is_some()
    }

    /// What the task has taken until it is done with what it is at.
    fn taken(&self) -> Vec<Name> {
        self.doing.borrow().as_ref().map(Does::takes).unwrap_or_default()
    }
}

impl<'w> Task<'w> {
    fn start(world: &'w RefCell<World<'_>>, device: &Device) -> Task<'w> {
        let inbox = Rc::new(Inbox::default());
        let serve = {
            let inbox = inbox.clone();
            async move {
                loop {
                    let next = || inbox.next.take().map_or(Poll::Pending, Poll::Ready);
                    let does = poll_fn(|_| next()).await;
                    execute(world, does).await?;
                    *inbox.doing.borrow_mut() = None;
                }
            }
        };
        Task { inbox, future: Box::pin(device.scope(serve)) }
    }

    /// Has it do a line, up to where that awaits something.
    fn begin(&mut self, waiting: Waiting, does: &Does) -> Checked {
        *self.inbox.doing.borrow_mut() = Some(does.clone());
        self.inbox.next.set(Some(does.clone()));
        self.poll(waiting)
    }

    fn poll(&mut self, waiting: Waiting) -> Checked {
        match waiting.poll(&mut self.future) {
            Poll::Ready(ended) => ended,
            Poll::Pending => Ok(()),
        }
    }

    /// Has it do what it is at to the end.
    fn finish(&mut self, waiting: Waiting) -> Checked {
        if !self.inbox.is_busy() {
            return Ok(());
        }
        let Task { inbox, future } = self;
        waiting.drive(poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Pending if !inbox.is_busy() => Poll::Ready(Ok(())),
            polled => polled,
        }))
    }
}

struct Runner<'w, 'a> {
    device: &'a Device,
    settings: Settings,
    world: &'w RefCell<World<'a>>,
    streams: Vec<Stream>,
    tasks: Vec<Task<'w>>,
}

impl Runner<'_, '_> {
    fn line(&mut self, line: &Line) -> Checked {
        let (world, waiting) = (self.world, self.settings.waiting);
        match line.does {
            Does::PollTask { task } if self.tasks[task].inbox.is_busy() => {
                return self.tasks[task].poll(waiting);
            }
            Does::PollTask { .. } => return Ok(()),
            Does::AbortTask { task } => return self.abort(task),
            Does::Refuse { after } => {
                if self.settings.refusals {
                    let refusal = Fault::any_call(DriverError::NOT_SUPPORTED).after(after);
                    sim(self.device).inject(refusal);
                }
                return Ok(());
            }
            _ => {}
        }
        let needs = line.does.needs();
        for task in &mut self.tasks {
            if task.inbox.taken().iter().any(|name| needs.contains(name)) {
                task.finish(waiting)?;
            }
        }
        match line.place {
            Place::Task(task) => {
                self.tasks[task].finish(waiting)?;
                self.tasks[task].begin(waiting, &line.does)
            }
            Place::Thread => waiting.drive(execute(world, line.does.clone())),
            Place::Stream(stream) => {
                let stream = &self.streams[stream];
                waiting.drive(stream.scope(execute(world, line.does.clone())))
            }
        }
    }

    /// Drops a task; what it had taken goes with it.
    fn abort(&mut self, task: usize) -> Checked {
        let taken = self.tasks[task].inbox.taken();
        self.tasks[task] = Task::start(self.world, self.device);
        let mut world = self.world.borrow_mut();
        taken.into_iter().try_for_each(|name| world.lost(name))
    }

    /// Reads what has been written of everything, as line `at`.
    fn read_all(&mut self, at: usize) -> Checked {
        let (world, waiting) = (self.world, self.settings.waiting);
        self.tasks.iter_mut().try_for_each(|task| task.finish(waiting))?;
        world.borrow_mut().at = at;
        for (turn, name) in Name::all().into_iter().enumerate() {
            if !world.borrow().model.has(name) {
                continue;
            }
            let views = world.borrow().model.written(name);
            for view in views {
                let operand = Operand { of: name, at: view };
                match name {
                    Name::Pinned(_) | Name::PinnedPart(_) => {
                        waiting.drive(read(world, operand, How::Await))?;
                    }
                    _ => {
                        let stream = &self.streams[turn % STREAMS];
                        waiting.drive(stream.scope(to_vec(world, operand, End::Await)))?;
                    }
                }
            }
        }
        Ok(())
    }
}
