//! Random programs, by proptest: a program that fails is made smaller while it still does.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::Union;

use super::names::{BUFFERS, LENGTHS, Name, PARTS, PINNED, SHARED};
use super::operands::{
    down, of_one, on_device, on_host, rows_and_column, rows_and_column_of_one, three, to_read, up,
    written,
};
use super::program::{
    Deal, Does, End, Fate, HELD, How, Line, Old, Order, Place, Program, STREAMS, TASKS, Work,
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
    /// Whether lines share buffers and read shared ones.
    pub(crate) shared: bool,
    /// Whether what is computed may depend on when the device is done.
    pub(crate) timely: bool,
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

type Weighted = (u32, BoxedStrategy<Does>);

fn does(shape: Shape) -> impl Strategy<Value = Does> {
    let mut lines: Vec<Weighted> = vec![
        (60, (work(shape), fate()).prop_map(|(work, fate)| Does::Work(work, fate)).boxed()),
        (4, (on_host(), how(shape)).prop_map(|(p, how)| Does::Read { p, how }).boxed()),
        (4, host_write(shape).boxed()),
        (3, (to_read(shape), end(shape)).prop_map(|(x, end)| Does::ToVec { x, end }).boxed()),
        (3, upload(shape).boxed()),
        (5, alloc().boxed()),
        (2, held().prop_map(|held| Does::AwaitHeld { held }).boxed()),
        (2, held().prop_map(|held| Does::AskHeld { held }).boxed()),
        (1, held().prop_map(|held| Does::DropHeld { held }).boxed()),
        (1, Just(Does::Synchronize).boxed()),
        (2, (0..TASKS).prop_map(|task| Does::PollTask { task }).boxed()),
    ];
    lines.extend(of_parts());
    if shape.timely {
        lines.push((1, (0..TASKS).prop_map(|task| Does::AbortTask { task }).boxed()));
    }
    if shape.events {
        lines.extend(of_events());
    }
    if shape.shared {
        lines.extend(of_shared());
    }
    if shape.refusals {
        lines.push((15, (0..8u64).prop_map(|after| Does::Refuse { after }).boxed()));
    }
    Union::new_weighted(lines)
}

fn of_events() -> [Weighted; 3] {
    [
        (3, held().prop_map(|event| Does::Record { event }).boxed()),
        (3, held().prop_map(|event| Does::WaitFor { event }).boxed()),
        (1, held().prop_map(|event| Does::AwaitEvent { event }).boxed()),
    ]
}

fn of_parts() -> [Weighted; 4] {
    let stranger = prop_oneof![7 => Just(false), 1 => Just(true)];
    let rejoin = (dealt(), order(), stranger, deal())
        .prop_map(|(x, order, stranger, deal)| Does::Rejoin { x, order, stranger, deal });
    let deal = (dealt(), length(), deal()).prop_map(|(x, len, deal)| Does::Deal { x, len, deal });
    let part = (any::<bool>(), 0..PARTS).prop_map(|(pinned, part)| match pinned {
        false => Name::Part(part),
        true => Name::PinnedPart(part),
    });
    let own =
        (0..PARTS, value()).prop_map(|(part, value)| Does::Own { part: Name::Part(part), value });
    [
        (4, rejoin.boxed()),
        (2, deal.boxed()),
        (1, part.prop_map(|part| Does::DropPart { part }).boxed()),
        (2, own.boxed()),
    ]
}

fn of_shared() -> [Weighted; 3] {
    let shared = || (0..SHARED).prop_map(Name::Shared);
    let share = (buffer(), shared()).prop_map(|(x, shared)| Does::Share { x, shared });
    let alloc = (shared(), length(), any::<bool>())
        .prop_map(|(shared, len, zeroed)| Does::AllocShared { shared, len, zeroed });
    [(3, share.boxed()), (1, Just(Does::CloneShared).boxed()), (1, alloc.boxed())]
}

fn work(shape: Shape) -> impl Strategy<Value = Work> {
    let copies = |(from, to), by_source| Work::Copy { from, to, by_source };
    let by = any::<bool>;
    prop_oneof![
        6 => (written(true), value()).prop_map(|(x, value)| Work::Fill { x, value }),
        6 => written(false).prop_map(|x| Work::Increment { x }),
        4 => on_device(shape, false).prop_map(|(from, to)| Work::CopyKernel { from, to }),
        1 => of_one(false).prop_map(|(from, to)| Work::CopyKernel { from, to }),
        4 => three(shape).prop_map(|[a, b, to]| Work::Add { a, b, to }),
        3 => rows_and_column(shape).prop_map(|(from, to)| Work::SumRows { from, to }),
        1 => rows_and_column_of_one().prop_map(|(from, to)| Work::SumRows { from, to }),
        4 => (on_device(shape, true), by()).prop_map(move |(of, by)| copies(of, by)),
        2 => (of_one(true), by()).prop_map(move |(of, by)| copies(of, by)),
        5 => (up(), by()).prop_map(move |(of, by)| copies(of, by)),
        5 => (down(shape), by()).prop_map(move |(of, by)| copies(of, by)),
    ]
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

fn end(shape: Shape) -> impl Strategy<Value = End> {
    let drops = u32::from(shape.timely);
    prop_oneof![
        4 => Just(End::Await),
        1 => Just(End::Drop),
        drops => Just(End::PollAndDrop),
    ]
}

fn how(shape: Shape) -> impl Strategy<Value = How> {
    let tries = u32::from(shape.timely);
    prop_oneof![
        3 => Just(How::Await),
        2 => Just(How::Block),
        2 * tries => Just(How::Try),
        tries => Just(How::PollAndDrop),
    ]
}

fn host_write(shape: Shape) -> impl Strategy<Value = Does> {
    (on_host(), value(), how(shape)).prop_map(|(p, value, how)| Does::Write { p, value, how })
}

fn upload(shape: Shape) -> impl Strategy<Value = Does> {
    (buffer(), length(), value(), end(shape)).prop_map(|(x, len, value, end)| Does::Upload {
        x,
        len,
        value,
        end,
    })
}

fn alloc() -> impl Strategy<Value = Does> {
    let x = prop_oneof![2 => buffer(), 1 => pinned()];
    (x, length(), prop::bool::weighted(0.7), old()).prop_map(|(x, len, zeroed, old)| Does::Alloc {
        x,
        len,
        zeroed,
        old,
    })
}

fn old() -> impl Strategy<Value = Old> {
    prop_oneof![3 => Just(Old::DroppedBefore), 1 => Just(Old::DroppedAfter)]
}

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![Just(Order::AsDealt), Just(Order::Reversed), Just(Order::Rotated)]
}

/// Mostly in two. The longest buffer comes to no more parts than there are names.
fn deal() -> impl Strategy<Value = Deal> {
    const EACH: usize = LENGTHS[0].div_ceil(PARTS);
    prop_oneof![
        4 => Just(Deal::Parts(2)),
        2 => (1..=PARTS).prop_map(Deal::Parts),
        1 => (EACH..=LENGTHS[0]).prop_map(Deal::Chunks),
    ]
}

/// Mostly the usual one: buffers of different lengths do not go together.
fn length() -> impl Strategy<Value = usize> {
    prop_oneof![8 => Just(LENGTHS[0]), 1 => Just(LENGTHS[1]), 1 => Just(LENGTHS[2])]
}

fn value() -> impl Strategy<Value = u32> {
    // Few enough to read; many enough that two are rarely the same.
    0..100_000u32
}

fn buffer() -> impl Strategy<Value = Name> {
    (0..BUFFERS).prop_map(Name::Buffer)
}

fn pinned() -> impl Strategy<Value = Name> {
    (0..PINNED).prop_map(Name::Pinned)
}

/// What is dealt out or rejoined.
fn dealt() -> impl Strategy<Value = Name> {
    prop_oneof![2 => buffer(), 1 => pinned()]
}

fn held() -> impl Strategy<Value = usize> {
    0..HELD
}
