//! Random programs, by proptest: a program that fails is made smaller while it still does.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::Union;

use super::program::{
    BUFFERS, Buffer, Does, End, Fate, HELD, How, LENGTHS, Line, Old, PINNED, Pinned, Place,
    Program, STREAMS, TASKS, Work,
};

/// What programs are made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// At most so many lines.
    pub(crate) lines: usize,
    /// Whether the driver refuses calls.
    pub(crate) refusals: bool,
    /// Whether lines record events and wait for them.
    pub(crate) events: bool,
}

pub(crate) fn programs(shape: Shape) -> impl Strategy<Value = Program> {
    // From none on, or shrinking would stop there.
    let lines = vec(line(shape), 0..=shape.lines);
    (lines, any::<u64>().no_shrink()).prop_map(|(lines, dice)| Program { lines, dice })
}

fn line(shape: Shape) -> impl Strategy<Value = Line> {
    (place(), does(shape)).prop_map(|(place, does)| Line { place, does })
}

/// Simpler places come first: that is where shrinking goes.
fn place() -> impl Strategy<Value = Place> {
    prop_oneof![
        2 => Just(Place::Thread),
        6 => (0..STREAMS).prop_map(Place::Stream),
        6 => (0..TASKS).prop_map(Place::Task),
    ]
}

fn does(shape: Shape) -> impl Strategy<Value = Does> {
    let control: [(u32, BoxedStrategy<Does>); _] = [
        (60, (work(), fate()).prop_map(|(work, fate)| Does::Work(work, fate)).boxed()),
        (3, host_read().boxed()),
        (3, host_write().boxed()),
        (3, (buffer(), end()).prop_map(|(x, end)| Does::ToVec { x, end }).boxed()),
        (3, upload().boxed()),
        (4, alloc().boxed()),
        (2, alloc_host().boxed()),
        (2, held().prop_map(|held| Does::AwaitHeld { held }).boxed()),
        (2, held().prop_map(|held| Does::AskHeld { held }).boxed()),
        (1, held().prop_map(|held| Does::DropHeld { held }).boxed()),
        (1, Just(Does::Synchronize).boxed()),
        (2, (0..TASKS).prop_map(|task| Does::PollTask { task }).boxed()),
        (1, (0..TASKS).prop_map(|task| Does::AbortTask { task }).boxed()),
    ];
    let events: [(u32, BoxedStrategy<Does>); _] = [
        (3, held().prop_map(|event| Does::Record { event }).boxed()),
        (3, held().prop_map(|event| Does::WaitFor { event }).boxed()),
        (1, held().prop_map(|event| Does::AwaitEvent { event }).boxed()),
    ];
    let refusals = [(15, (0..8u64).prop_map(|after| Does::Refuse { after }).boxed())];
    let events = events.into_iter().filter(move |_| shape.events);
    let refusals = refusals.into_iter().filter(move |_| shape.refusals);
    Union::new_weighted(control.into_iter().chain(events).chain(refusals).collect())
}

fn work() -> impl Strategy<Value = Work> {
    prop_oneof![
        6 => (buffer(), value()).prop_map(|(x, value)| Work::Fill { x, value }),
        6 => buffer().prop_map(|x| Work::Increment { x }),
        4 => two_buffers().prop_map(|(from, to)| Work::CopyKernel { from, to }),
        4 => sum(),
        4 => (two_buffers(), any::<bool>())
            .prop_map(|((from, to), by_source)| Work::Copy { from, to, by_source }),
        5 => (pinned(), buffer(), any::<bool>())
            .prop_map(|(from, to, by_source)| Work::Up { from, to, by_source }),
        5 => (buffer(), pinned(), any::<bool>())
            .prop_map(|(from, to, by_source)| Work::Down { from, to, by_source }),
    ]
}

/// Of two buffers, which may be one, into another.
fn sum() -> impl Strategy<Value = Work> {
    (0..BUFFERS, 1..BUFFERS, 1..BUFFERS).prop_map(|(to, a, b)| {
        let other = |far: usize| Buffer((to + far) % BUFFERS);
        Work::Add { a: other(a), b: other(b), to: Buffer(to) }
    })
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        8 => Just(Fate::Drop),
        2 => Just(Fate::Await),
        4 => held().prop_map(Fate::Hold),
        2 => Just(Fate::Poll),
        2 => held().prop_map(Fate::PollAndHold),
        2 => Just(Fate::Forget),
    ]
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![4 => Just(End::Await), 1 => Just(End::Drop), 1 => Just(End::PollAndDrop)]
}

fn how() -> impl Strategy<Value = How> {
    prop_oneof![
        3 => Just(How::Await),
        2 => Just(How::Block),
        2 => Just(How::Try),
        1 => Just(How::PollAndDrop),
    ]
}

fn host_read() -> impl Strategy<Value = Does> {
    (pinned(), how()).prop_map(|(p, how)| Does::Read { p, how })
}

fn host_write() -> impl Strategy<Value = Does> {
    (pinned(), value(), how()).prop_map(|(p, value, how)| Does::Write { p, value, how })
}

fn upload() -> impl Strategy<Value = Does> {
    (buffer(), length(), value(), end()).prop_map(|(x, len, value, end)| Does::Upload {
        x,
        len,
        value,
        end,
    })
}

fn alloc() -> impl Strategy<Value = Does> {
    (buffer(), length(), any::<bool>(), old()).prop_map(|(x, len, zeroed, old)| Does::Alloc {
        x,
        len,
        zeroed,
        old,
    })
}

fn alloc_host() -> impl Strategy<Value = Does> {
    (pinned(), length(), old()).prop_map(|(p, len, old)| Does::AllocHost { p, len, old })
}

fn old() -> impl Strategy<Value = Old> {
    prop_oneof![3 => Just(Old::DroppedBefore), 1 => Just(Old::DroppedAfter)]
}

/// Mostly the usual one: buffers of different lengths do not go together.
fn length() -> impl Strategy<Value = usize> {
    prop_oneof![5 => Just(LENGTHS[0]), 1 => Just(LENGTHS[1])]
}

fn value() -> impl Strategy<Value = u32> {
    // Few enough to read; many enough that two are rarely the same.
    0..100_000u32
}

fn buffer() -> impl Strategy<Value = Buffer> {
    (0..BUFFERS).prop_map(Buffer)
}

fn two_buffers() -> impl Strategy<Value = (Buffer, Buffer)> {
    let other = |(from, far): (usize, usize)| (Buffer(from), Buffer((from + far) % BUFFERS));
    (0..BUFFERS, 1..BUFFERS).prop_map(other)
}

fn pinned() -> impl Strategy<Value = Pinned> {
    (0..PINNED).prop_map(Pinned)
}

fn held() -> impl Strategy<Value = usize> {
    0..HELD
}
