//! Lines by which elements come to the host and from there.

use std::cell::RefCell;
use std::fmt;
use std::task::Poll;

use headwater::{Error, TileMut};

use super::memory::{Held, Source, Target, with_host_target};
use super::model::{Refusal, counting};
use super::names::{COLUMNS, Name, Operand, View};
use super::program::{End, How};
use super::world::{Checked, World, polled, wrong};

pub(super) async fn upload(
    world: &RefCell<World<'_>>,
    x: Name,
    data: Vec<u32>,
    end: End,
) -> Checked {
    let mut upload = world.borrow().device.upload(&data);
    let uploaded = match end {
        End::Drop => return Ok(()),
        End::PollAndDrop => match polled(&mut upload).await {
            Poll::Ready(uploaded) => uploaded,
            Poll::Pending => return Ok(()),
        },
        End::Await => {
            let old = world.borrow_mut().taken(x);
            let uploaded = upload.await;
            world.borrow_mut().give(x, old);
            uploaded
        }
    };
    let mut world = world.borrow_mut();
    if let Some(buffer) = world.unless_refused(uploaded)? {
        world.give(x, Held::Buffer(buffer));
        world.model.put(x, data.into_iter().map(Some).collect());
    }
    Ok(())
}

/// What the model has there, or why it cannot be read.
type Expected = Result<Vec<u32>, Refusal>;

pub(super) async fn to_vec(world: &RefCell<World<'_>>, x: Operand, end: End) -> Checked {
    if !world.borrow().model.has(x.of) {
        return Ok(());
    }
    let line = world.borrow().at;
    let expected = world.borrow().model.read(x);
    if let End::Await = end {
        // Not borrowed while others go on.
        let staged = {
            let world = world.borrow();
            world.get(x.of).source(x.at).and_then(|source| source.read_back(world.device))
        };
        let read = match staged {
            Ok(staged) => staged.read().await.map(|elements| elements.to_vec()),
            Err(error) => Err(error),
        };
        return check(world, line, x, read, expected);
    }
    read_for_a_moment(world, x, end, expected).await
}

/// Asks for the bytes, and lets go before they come.
#[allow(clippy::await_holding_refcell_ref, reason = "what is awaited is ready at once")]
async fn read_for_a_moment(
    world: &RefCell<World<'_>>,
    x: Operand,
    end: End,
    expected: Expected,
) -> Checked {
    let read = {
        let world = world.borrow();
        match (world.get(x.of).source(x.at).map(Source::to_vec), end) {
            (Ok(mut reading), End::PollAndDrop) => polled(&mut reading).await,
            (Ok(_), End::Drop | End::Await) => Poll::Pending,
            (Err(error), _) => Poll::Ready(Err(error)),
        }
    };
    match read {
        Poll::Ready(read) => compare(world, x, read, &expected),
        Poll::Pending => Ok(()),
    }
}

/// Holds what a line waited for against what the model had when it was asked for, and keeps it.
fn check(
    world: &RefCell<World<'_>>,
    line: usize,
    what: impl fmt::Display,
    read: Result<Vec<u32>, Error>,
    expected: Expected,
) -> Checked {
    if let Ok(elements) = &read {
        world.borrow_mut().came.read.push((line, elements.clone()));
    }
    compare(world, what, read, &expected)
}

fn compare(
    world: &RefCell<World<'_>>,
    what: impl fmt::Display,
    read: Result<Vec<u32>, Error>,
    expected: &Expected,
) -> Checked {
    match (read, expected) {
        (Ok(read), Ok(expected)) if read == *expected => Ok(()),
        (Err(Error::Uninitialised { .. }), Err(Refusal::Uninitialised))
        | (Err(Error::OutOfRange { .. } | Error::NotRows { .. }), Err(Refusal::NotThere)) => Ok(()),
        (Err(Error::Refused { .. }), _) if world.borrow().refusals => Ok(()),
        (Ok(read), expected) => wrong(format!("{what} was read as {read:?}, and is {expected:?}")),
        (Err(error), Ok(_)) => Err(error.into()),
        (Err(error), Err(refusal)) => wrong(format!("{what}: {error}, and not {refusal:?}")),
    }
}

/// What became of asking for elements: nothing, where they were not to be had at once.
macro_rules! asked {
    ($view:expr, $how:expr, $await:ident, $block:ident, $try:ident) => {
        match $how {
            How::Await => Some($view.$await().await),
            How::Block => Some($view.$block()),
            How::Try => match $view.$try() {
                Err(Error::InFlight { .. }) => None,
                had => Some(had),
            },
            How::PollAndDrop => match polled(&mut $view.$await()).await {
                Poll::Ready(had) => Some(had),
                Poll::Pending => None,
            },
        }
    };
}

async fn read_source(source: Source<'_>, how: How) -> Option<Result<Vec<u32>, Error>> {
    match source {
        Source::HostSlice(slice) => asked!(slice, how, read, blocking_read, try_read)
            .map(|read| read.map(|elements| elements.to_vec())),
        Source::HostTile(tile) => asked!(tile, how, read, blocking_read, try_read)
            .map(|read| read.map(|tile| tile.iter_rows().flatten().copied().collect())),
        Source::Slice(_) | Source::Tile(_) => unreachable!("it is on the device"),
    }
}

pub(super) async fn read(world: &RefCell<World<'_>>, p: Operand, how: How) -> Checked {
    let line = world.borrow().at;
    // Kept from others while it is awaited.
    let Some(held) = world.borrow_mut().take(p.of) else { return Ok(()) };
    let expected = world.borrow().model.read(p);
    let read = match held.source(p.at) {
        Ok(source) => read_source(source, how).await,
        Err(error) => Some(Err(error)),
    };
    world.borrow_mut().give(p.of, held);
    match (read, how) {
        (None, _) => Ok(()),
        (Some(read), How::Await | How::Block) => check(world, line, p, read, expected),
        (Some(read), How::Try | How::PollAndDrop) => compare(world, p, read, &expected),
    }
}

fn set_rows(mut tile: TileMut<'_, u32>, elements: &[u32]) {
    let to = tile.iter_rows_mut().flatten();
    to.zip(elements).for_each(|(to, element)| *to = *element);
}

/// Whether they were to be had, and are written.
async fn write_target(target: Target<'_>, how: How, elements: &[u32]) -> Option<Result<(), Error>> {
    match target {
        Target::HostSlice(mut slice) => asked!(slice, how, write, blocking_write, try_write)
            .map(|had| had.map(|mut to| to.copy_from_slice(elements))),
        Target::HostTile(mut tile) => asked!(tile, how, write, blocking_write, try_write)
            .map(|had| had.map(|to| set_rows(to, elements))),
        Target::Slice(_) | Target::Tile(_) => unreachable!("it is on the device"),
    }
}

async fn write_held(
    held: &mut Held,
    at: View,
    how: How,
    elements: &[u32],
) -> Result<Option<()>, Error> {
    let all = match held {
        Held::Pinned(buffer) => buffer.as_slice_mut(),
        Held::PinnedPart(part) => part.as_slice_mut(),
        _ => unreachable!("it is on the device"),
    };
    with_host_target!(all, at, target => write_target(target, how, elements).await.transpose())
}

pub(super) async fn write(world: &RefCell<World<'_>>, p: Operand, value: u32, how: How) -> Checked {
    let Some(mut held) = world.borrow_mut().take(p.of) else { return Ok(()) };
    let expected = world.borrow().model.len(p).map(|len| counting(value, len));
    let elements = expected.as_deref().unwrap_or_default();
    let written = write_held(&mut held, p.at, how, elements).await;
    let mut world = world.borrow_mut();
    world.give(p.of, held);
    match (written, expected) {
        (Ok(Some(())), Ok(elements)) => world.model.write(p, &elements),
        (Ok(None), Ok(_)) | (Err(Error::OutOfRange { .. } | Error::NotRows { .. }), Err(_)) => {}
        (Ok(_), Err(refusal)) => return wrong(format!("{p} could be written: {refusal:?}")),
        (Err(error), _) => return Err(error.into()),
    }
    Ok(())
}
