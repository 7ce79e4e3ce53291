//! Loom's locks behind this crate's names, and how a model is explored.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use self::atomic::{AtomicBool, Ordering};

/// Loom's atomics, with two of its gaps closed.
///
/// - Loom looks for the last access that an access depends on, and a thread's own load hides another
///   thread's from its store: where one loads, and another loads and then stores, it does not try
///   the store before the load. So every access also notifies a condition variable that nobody waits
///   for. Loom takes such calls to depend on each other, and they order nothing in memory.
/// - Loom lets a store come before what a read-modify-write made of the value that the store replaced
///   (it has no rule for their atomicity). So a store that releases is a swap.
pub(super) mod atomic {
    use loom::sync::Condvar;
    pub(crate) use loom::sync::atomic::{Ordering, fence};

    macro_rules! atomic {
        ($name:ident $(<$generic:ident>)?, $value:ty, $default:expr) => {
            pub(crate) struct $name $(<$generic>)? {
                accesses: Condvar,
                value: loom::sync::atomic::$name $(<$generic>)?,
            }

            #[allow(dead_code, reason = "not all of them have everything done to them")]
            impl $(<$generic>)? $name $(<$generic>)? {
                pub(crate) fn new(value: $value) -> Self {
                    let value = loom::sync::atomic::$name::new(value);
                    $name { accesses: Condvar::new(), value }
                }

                #[track_caller]
                pub(crate) fn load(&self, order: Ordering) -> $value {
                    self.accesses.notify_one();
                    self.value.load(order)
                }

                #[track_caller]
                pub(crate) fn store(&self, value: $value, order: Ordering) {
                    self.accesses.notify_one();
                    match order {
                        Ordering::Release => _ = self.value.swap(value, order),
                        _ => self.value.store(value, order),
                    }
                }

                #[track_caller]
                pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                    self.accesses.notify_one();
                    self.value.swap(value, order)
                }

                #[track_caller]
                pub(crate) fn compare_exchange(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    self.accesses.notify_one();
                    self.value.compare_exchange(current, new, success, failure)
                }
            }

            impl $(<$generic>)? Default for $name $(<$generic>)? {
                fn default() -> Self {
                    Self::new($default)
                }
            }

            impl $(<$generic>)? std::fmt::Debug for $name $(<$generic>)? {
                fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    self.value.fmt(f)
                }
            }
        };
    }

    macro_rules! number {
        ($name:ident, $value:ty) => {
            atomic!($name, $value, 0);

            #[allow(dead_code, reason = "not all of them have everything done to them")]
            impl $name {
                #[track_caller]
                pub(crate) fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                    self.accesses.notify_one();
                    self.value.fetch_add(value, order)
                }

                #[track_caller]
                pub(crate) fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                    self.accesses.notify_one();
                    self.value.fetch_max(value, order)
                }

                #[track_caller]
                pub(crate) fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                    self.accesses.notify_one();
                    self.value.fetch_or(value, order)
                }
            }
        };
    }

    number!(AtomicU64, u64);
    number!(AtomicUsize, usize);
    atomic!(AtomicBool, bool, false);
    atomic!(AtomicPtr<T>, *mut T, std::ptr::null_mut());
}

/// Loom does not take a lock's release for an access, so that it seldom tries a `try_lock` while the lock is
/// held. So both notify, as accesses of [`atomic`] do.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T> {
    accesses: loom::sync::Condvar,
    lock: loom::sync::Mutex<T>,
}

#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    /// `Some` until it is dropped.
    guard: Option<loom::sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Mutex { accesses: loom::sync::Condvar::new(), lock: loom::sync::Mutex::new(value) }
    }

    #[track_caller]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: self, guard: self.lock.lock().ok() }
    }

    #[track_caller]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.accesses.notify_one();
        self.lock.try_lock().ok().map(|guard| MutexGuard { mutex: self, guard: Some(guard) })
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.guard.as_ref().expect("held until dropped")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_mut().expect("held until dropped")
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        if self.guard.is_some() && !std::thread::panicking() {
            self.mutex.accesses.notify_one();
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Condvar(loom::sync::Condvar);

impl Condvar {
    #[track_caller]
    pub(crate) fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        guard.guard = guard.guard.take().and_then(|guard| self.0.wait(guard).ok());
        guard
    }

    /// No time passes in a model: returns when notified.
    #[track_caller]
    pub(crate) fn wait_until<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        _until: Instant,
    ) -> MutexGuard<'a, T> {
        self.wait(guard)
    }

    #[track_caller]
    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }
}

/// A value that is set once. Whether it is set is loom's to say, so that a thread which was not told
/// may still find nothing.
#[derive(Debug)]
pub(crate) struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    is_set: AtomicBool,
}

impl<T> OnceLock<T> {
    pub(crate) fn new() -> Self {
        OnceLock { value: std::sync::OnceLock::new(), is_set: AtomicBool::new(false) }
    }

    #[track_caller]
    pub(crate) fn get(&self) -> Option<&T> {
        self.is_set.load(Ordering::Acquire).then(|| self.value.get()).flatten()
    }

    #[track_caller]
    pub(crate) fn set(&self, value: T) -> Result<(), T> {
        let set = self.value.set(value);
        self.is_set.store(true, Ordering::Release);
        set
    }
}

/// Runs `model` with every interleaving of its threads that differs in what they see of each other.
/// With `preemptions`, only with those in which so many times a thread is stopped that could go on.
pub(crate) fn explore(preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let runs = Arc::new(AtomicU64::new(0));
    let counted = runs.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(preemptions);
    builder.max_branches = 20_000;
    let start = Instant::now();
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    eprintln!("{} interleavings in {:.1?}", runs.load(Ordering::Relaxed), start.elapsed());
}
