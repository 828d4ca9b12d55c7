//! What a router does: the same for the stand-in and, where `WAYSTATION_QDROUTERD` names one, for a real qdrouterd.

mod management;
mod messages;
mod support;
