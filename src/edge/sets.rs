//! Sets that are small nearly always: most objects refer to a few others. A tree's node would cost more than they hold.

use std::collections::BTreeSet;

/// Members in order, in one piece: for sets that stay small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sorted<T>(Vec<T>);

impl<T> Default for Sorted<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Ord> Sorted<T> {
    /// Puts a member in; whether it was not there.
    pub fn insert(&mut self, member: T) -> bool {
        match self.0.binary_search(&member) {
            Ok(_) => false,
            Err(at) => {
                if self.0.len() < 4 {
                    self.0.reserve_exact(1);
                }
                self.0.insert(at, member);
                true
            }
        }
    }

    /// Takes a member out; whether it was there.
    pub fn remove(&mut self, member: &T) -> bool {
        match self.0.binary_search(member) {
            Ok(at) => {
                self.0.remove(at);
                true
            }
            Err(_) => false,
        }
    }

    /// Whether it is a member.
    pub fn contains(&self, member: &T) -> bool {
        self.0.binary_search(member).is_ok()
    }

    /// Members of this one that the other has not.
    pub fn difference<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a T> {
        self.0.iter().filter(move |member| !other.contains(member))
    }

    /// Members, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Members, in order.
    pub fn into_members(self) -> std::vec::IntoIter<T> {
        self.0.into_iter()
    }
}

impl<T: Ord> Extend<T> for Sorted<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, members: I) {
        for member in members {
            self.insert(member);
        }
    }
}

impl<T: Ord> FromIterator<T> for Sorted<T> {
    fn from_iter<I: IntoIterator<Item = T>>(members: I) -> Self {
        let mut all: Vec<T> = members.into_iter().collect();
        all.sort();
        all.dedup();
        Self(all)
    }
}

impl<'a, T: Ord> IntoIterator for &'a Sorted<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Members in order, of which there may be very many all the same.
#[derive(Clone, Debug)]
pub enum Few<T> {
    /// In one piece.
    Some(Sorted<T>),
    /// In a tree.
    Many(BTreeSet<T>),
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self::Some(Sorted::default())
    }
}

/// More than this are many; fewer than a quarter are few again.
const MANY: usize = 32;

impl<T: Ord> Few<T> {
    /// Puts a member in; whether it was not there.
    pub fn insert(&mut self, member: T) -> bool {
        match self {
            Self::Some(some) if some.len() < MANY => some.insert(member),
            Self::Some(some) => {
                let mut many: BTreeSet<T> = std::mem::take(&mut some.0).into_iter().collect();
                let new = many.insert(member);
                *self = Self::Many(many);
                new
            }
            Self::Many(many) => many.insert(member),
        }
    }

    /// Takes a member out; whether it was there.
    pub fn remove(&mut self, member: &T) -> bool {
        match self {
            Self::Some(some) => some.remove(member),
            Self::Many(many) => {
                let was = many.remove(member);
                if many.len() < MANY / 4 {
                    *self = Self::Some(std::mem::take(many).into_iter().collect());
                }
                was
            }
        }
    }

    /// Whether it is a member.
    pub fn contains(&self, member: &T) -> bool {
        match self {
            Self::Some(some) => some.contains(member),
            Self::Many(many) => many.contains(member),
        }
    }

    /// The first in order.
    pub fn first(&self) -> Option<&T> {
        self.iter().next()
    }

    /// The last in order.
    pub fn last(&self) -> Option<&T> {
        match self {
            Self::Some(some) => some.iter().next_back(),
            Self::Many(many) => many.last(),
        }
    }

    /// Members, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let (some, many) = match self {
            Self::Some(some) => (Some(some.iter()), None),
            Self::Many(many) => (None, Some(many.iter())),
        };
        some.into_iter().flatten().chain(many.into_iter().flatten())
    }

    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Self::Some(some) => some.len(),
            Self::Many(many) => many.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_many_are_one_set() {
        let mut few = Few::default();
        let mut plain = BTreeSet::new();
        // Up beyond many, and down again, in no order.
        for step in 0..400_u32 {
            let member = step * 37 % 101;
            if step < 200 || step % 7 == 0 {
                assert_eq!(few.insert(member), plain.insert(member));
            } else {
                assert_eq!(few.remove(&member), plain.remove(&member));
            }
            assert!(few.iter().eq(plain.iter()) && few.len() == plain.len() && few.first() == plain.first());
            assert_eq!(few.last(), plain.last());
            assert_eq!(few.contains(&member), plain.contains(&member));
        }
        let a: Sorted<u8> = [3, 1, 2, 3].into_iter().collect();
        let b: Sorted<u8> = [2].into_iter().collect();
        assert_eq!(a.difference(&b).collect::<Vec<_>>(), [&1, &3]);
    }
}
