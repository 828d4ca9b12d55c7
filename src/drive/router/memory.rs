//! What a router holds of ours, as known in one session: what is there decides what a job has to do.
//!
//! Small, since there may be 100,000 slots on each of many routers: names are not kept, as they follow from the
//! entities; entities are kept once for all slots that have the same; and a slot is known by a 64-bit number, whose
//! seed nobody outside knows. 100,000 slots cost less than 4 MB.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ahash::RandomState;

use super::link::Type;
use crate::messaging::ids::Slot;
use crate::messaging::router::{Connector, Entity};

/// What a slot consists of, sorted. Credentials are left out: no router shows them.
pub type Shape = Arc<[Entity]>;

/// An entity with our mark that is none that we would make: its type and name.
pub type Stray = (Type, String);

/// The memory of one session.
#[derive(Debug)]
pub struct Memory {
    seeds: RandomState,
    slots: HashMap<u64, Shape, RandomState>,
    shapes: HashSet<Shape, RandomState>,
    strays: HashMap<Slot, Vec<Stray>, RandomState>,
    links: usize,
}

impl Memory {
    /// Of a router of which nothing is known.
    pub fn new(seed: u64) -> Self {
        let seeds = RandomState::with_seeds(seed, seed.rotate_left(16), seed.rotate_left(32), seed.rotate_left(48));
        Self {
            slots: HashMap::with_hasher(seeds.clone()),
            shapes: HashSet::with_hasher(seeds.clone()),
            strays: HashMap::with_hasher(seeds.clone()),
            links: 0,
            seeds,
        }
    }

    fn number(&self, slot: &str) -> u64 {
        self.seeds.hash_one(slot)
    }

    /// What the slot consists of, as far as known.
    pub fn shape(&self, slot: &str) -> Option<Shape> {
        self.slots.get(&self.number(slot)).cloned()
    }

    /// What stands in the way of the slot.
    pub fn strays(&self, slot: &str) -> &[Stray] {
        self.strays.get(slot).map_or(&[], |strays| strays)
    }

    /// Auto-links on the router.
    pub fn links(&self) -> usize {
        self.links
    }

    /// From now on the slot consists of this.
    pub fn set(&mut self, slot: &str, mut entities: Vec<Entity>) {
        let number = self.number(slot);
        if let Some(before) = self.slots.remove(&number) {
            self.links -= count_links(&before);
            // This one and that in `shapes`.
            if Arc::strong_count(&before) == 2 {
                self.shapes.remove(&before);
            }
        }
        if entities.is_empty() {
            return;
        }
        for entity in &mut entities {
            *entity = without_credentials(entity);
        }
        entities.sort_unstable();
        self.links += count_links(&entities);
        let shape = match self.shapes.get(&*entities) {
            Some(known) => Arc::clone(known),
            None => {
                let new: Shape = entities.into();
                self.shapes.insert(Arc::clone(&new));
                new
            }
        };
        self.slots.insert(number, shape);
    }

    /// One more entity of the slot was read.
    pub fn add(&mut self, slot: &str, entity: Entity) {
        let mut entities = self.shape(slot).map(|shape| shape.to_vec()).unwrap_or_default();
        entities.push(entity);
        self.set(slot, entities);
    }

    /// A stray was read.
    pub fn add_stray(&mut self, slot: Slot, stray: Stray) {
        self.strays.entry(slot).or_default().push(stray);
    }

    /// The strays of a slot are gone.
    pub fn forget_strays(&mut self, slot: &str) {
        self.strays.remove(slot);
    }
}

fn count_links(entities: &[Entity]) -> usize {
    entities.iter().filter(|entity| matches!(entity, Entity::AutoLink(_))).count()
}

/// As a router shows it.
pub fn without_credentials(entity: &Entity) -> Entity {
    match entity {
        Entity::Connector(connector) => {
            Entity::Connector(Connector { credentials: None, relogin: false, ..connector.clone() })
        }
        entity => entity.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messaging::router::{AutoLink, Direction, Distribution};

    fn queue(broker: &str) -> Vec<Entity> {
        let link = |direction| Entity::AutoLink(AutoLink { direction, broker: broker.into(), external: None });
        let address = Entity::Address { distribution: Distribution::Balanced, waypoint: true };
        vec![address, link(Direction::In), link(Direction::Out)]
    }

    #[test]
    fn slots_of_one_shape_share_it_and_shapes_go_with_their_last_slot() {
        let mut memory = Memory::new(7);
        for at in 0..1_000 {
            memory.set(&format!("s/{at}"), queue(if at % 2 == 0 { "a" } else { "b" }));
        }
        assert_eq!((memory.slots.len(), memory.shapes.len(), memory.links()), (1_000, 2, 2_000));
        for at in 0..1_000 {
            memory.set(&format!("s/{at}"), Vec::new());
        }
        assert_eq!((memory.slots.len(), memory.shapes.len(), memory.links()), (0, 0, 0));
    }

    #[test]
    fn what_is_read_in_pieces_is_the_same_in_any_order() {
        let mut memory = Memory::new(7);
        for entity in queue("a") {
            memory.add("s/x", entity);
        }
        for entity in queue("a").into_iter().rev() {
            memory.add("s/y", entity);
        }
        assert_eq!(memory.shape("s/x"), memory.shape("s/y"));
        assert_eq!(memory.shapes.len(), 1);
        assert_eq!(memory.shape("s/z"), None);
    }
}
