//! A part of a program with a budget of its own.

use std::fmt;
use std::sync::Arc;

use super::budget::{Budget, Taken};
use super::stats::TenantStats;
use crate::device::{Device, DeviceCore};

/// A part of a program that may have so much device memory and no more: a client of a server, or a model among
/// several. A handle, cheap to clone.
///
/// What is allocated inside of [`scope`](Tenant::scope) or [`in_scope`](Tenant::in_scope) counts against its budget until
/// the buffer is dropped, wherever it has gone by then. That takes calls that are made inside: `tenant.scope(async { device.upload(x).await })`, and
/// not `tenant.scope(device.upload(x))`, whose call comes before the scope. Tasks of [`spawn`](crate::spawn) are inside, those of
/// `tokio::spawn` are not. An allocation beyond the budget is
/// [`Error::OverBudget`](crate::Error::OverBudget), and [`Device::alloc_wait`] waits for its turn. The device's memory is
/// not set apart: budgets may come to more than there is.
///
/// ```
/// # use headwater::{Device, Error};
/// # headwater::block_on(async {
/// let device = Device::simulated()?;
/// let tenant = device.tenant(1 << 20);
/// let x = tenant.scope(async { device.zeros::<u8>(1 << 19) }).await?;
/// let more = tenant.in_scope(|| device.alloc::<u8>(1 << 20));
/// assert!(matches!(more, Err(Error::OverBudget { .. })));
/// drop(x);
/// assert_eq!(tenant.memory().in_use, 0);
/// # Ok::<_, Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Tenant {
    core: Arc<DeviceCore>,
    budget: Arc<Budget>,
}

impl Device {
    /// A part of the program that may have `bytes` bytes of device memory, as counted by what it asks for.
    pub fn tenant(&self, bytes: u64) -> Tenant {
        Tenant { core: self.core().clone(), budget: Budget::new(bytes) }
    }
}

impl Tenant {
    /// The device whose memory it is about.
    pub fn device(&self) -> Device {
        Device::from_core(self.core.clone())
    }

    /// How much of its budget is taken, and how many wait. Asks nobody.
    pub fn memory(&self) -> TenantStats {
        let budget = &self.budget;
        let Taken { in_use, high_water } = budget.taken();
        let waiting = self.core.memory().waiting_of(budget);
        TenantStats { in_use, high_water, limit: budget.limit(), waiting }
    }

    pub(crate) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TenantStats { in_use, limit, .. } = self.memory();
        f.debug_struct("Tenant")
            .field("device", &self.core.number())
            .field("in_use", &in_use)
            .field("limit", &limit)
            .finish_non_exhaustive()
    }
}
