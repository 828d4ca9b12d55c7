//! Incremental equals full: after any sequence of events the model that lived through it and one built afresh from the
//! same objects and brokers want and say the same.
