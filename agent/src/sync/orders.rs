//! What an operator can ask of the loop.

use proxier_core::driver::SyncKind;

use super::SyncLoop;

/// Something to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// A full sync of every family.
    Sync,
    /// A comparison of the kernel with what was programmed, of every family.
    Verify,
}

impl SyncLoop {
    /// Asks for it. A family of which nothing is in the kernel yet has its first sync ahead in any case.
    pub(super) fn order(&mut self, order: Order) {
        for lane in self.lanes.iter_mut().filter(|l| l.programmed) {
            let family = lane.instance.family();
            match order {
                Order::Sync => {
                    lane.reconciler.request(SyncKind::Full);
                    self.observers.each(|o| o.queued(family));
                }
                Order::Verify => lane.reconciler.verify_soon(),
            }
        }
    }
}
