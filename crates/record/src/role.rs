//! Defines the roles (kinds) of calls.

use crate::wire::{Decoder, Encoder, Truncated, Wire};

model::numbered! {
    /// The kind of a recorded call, independent of the host (the runtime whose call it is).
    #[derive(Default)]
    pub enum Role {
        /// A workgroup of a dispatch, or a slice of an imported trace.
        #[default]
        Workgroup = 0 "workgroup",
        /// A model's call of an operator, or of a function that calls operators.
        Op = 1 "op",
        /// One run of a model: a call of one of its entry functions.
        Run = 2 "run",
        /// A parallel region of an op, on the thread that launched the region: from the launch
        /// until the region's tasks are done.
        Region = 3 "region",
        /// One task of a parallel region, on the thread that ran the task. The x component of the
        /// call's workgroup id is the task's number, and the x component of its workgroup count is
        /// the number of tasks.
        Task = 4 "task",
        /// An asynchronous span of an imported trace. It belongs to no thread.
        Span = 5 "span",
        /// Time that a profiler used for itself, in an imported trace.
        Bookkeeping = 6 "bookkeeping",
        /// A range that the program marked by name, for example with PyTorch's `record_function`.
        Range = 7 "range",
    }
}

impl Role {
    /// Returns whether calls with this role come from a host that calls ops
    /// ([`crate::host::Host::calls_ops`]).
    pub fn is_of_machine(self) -> bool {
        matches!(self, Self::Op | Self::Run | Self::Region | Self::Task | Self::Range)
    }

    /// Returns whether calls with this role belong to no thread of the program. Reports leave these
    /// calls out of self times and percentages.
    pub fn is_apart(self) -> bool {
        matches!(self, Self::Span | Self::Bookkeeping)
    }
}

impl Wire for Role {
    fn put(&self, e: &mut Encoder) {
        e.u8(*self as u8);
    }
    /// A role that this version does not know (its number is from a later version) is read as the
    /// default role.
    fn get(d: &mut Decoder<'_>) -> Result<Self, Truncated> {
        Ok(Self::ALL.get(usize::from(d.u8()?)).copied().unwrap_or_default())
    }
}
