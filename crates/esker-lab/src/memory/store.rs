//! Where rows lie: each by itself in malloc's heap, or one after the other in Esker's regions.
//!
//! Invariant: a slot that was inserted into and not deleted since has its row's bytes.

use crate::error::{LabError, Result};
use esker_memory::{Account, Region};

/// Bytes of a region that rows go to: the largest piece that a memtable takes.
const REGION_BYTES: usize = 1 << 20;
/// Piece and offset of an empty slot.
const NOWHERE: (u32, u32) = (u32::MAX, 0);

/// A place for rows, in slots.
pub(super) trait Store {
    /// With so many empty slots; what it needs besides rows is taken, and written to.
    fn with_slots(slots: usize) -> Self;
    /// Puts a row into an empty slot. Fails when there is no memory.
    fn insert(&mut self, slot: usize, row: &[u8]) -> Result<()>;
    /// Empties a slot that holds a row.
    fn delete(&mut self, slot: usize);
    /// The bytes of the row in a slot, which must be `bytes` long.
    fn get(&self, slot: usize, bytes: usize) -> Option<&[u8]>;
}

/// A piece of malloc's heap for each row; an empty slice takes none.
pub(super) struct Heap(Vec<Box<[u8]>>);

impl Store for Heap {
    fn with_slots(slots: usize) -> Heap {
        Heap(vec![Box::default(); slots])
    }

    fn insert(&mut self, slot: usize, row: &[u8]) -> Result<()> {
        self.0[slot] = row.into();
        Ok(())
    }

    fn delete(&mut self, slot: usize) {
        self.0[slot] = Box::default();
    }

    fn get(&self, slot: usize, bytes: usize) -> Option<&[u8]> {
        Some(&*self.0[slot]).filter(|row| row.len() == bytes)
    }
}

/// A region, and how many rows in it live.
struct Piece {
    region: Option<Region>,
    live: usize,
}

/// Rows one after the other in regions, as in a memtable's arena. A region goes back as a whole, when no row in it lives.
pub(super) struct Regions {
    pieces: Vec<Piece>,
    /// The piece that rows go to, and the bytes of it in use.
    current: usize,
    used: usize,
    /// Piece and offset by slot.
    places: Vec<(u32, u32)>,
}

impl Regions {
    /// A new region to go on with; the one before goes if nothing in it lives.
    fn grow(&mut self) -> Result<()> {
        self.let_go(self.current, usize::MAX);
        let region = Region::new(Account::Other, REGION_BYTES).map_err(|e| LabError::Failed(e.to_string()))?;
        let piece = Piece { region: Some(region), live: 0 };
        let free = self.pieces.iter().position(|p| p.region.is_none());
        self.current = match free {
            Some(free) => {
                self.pieces[free] = piece;
                free
            }
            None => {
                self.pieces.push(piece);
                self.pieces.len() - 1
            }
        };
        self.used = 0;
        Ok(())
    }

    /// Drops a region in which nothing lives, unless rows still go to it.
    fn let_go(&mut self, piece: usize, current: usize) {
        if let Some(p) = self.pieces.get_mut(piece).filter(|p| p.live == 0 && piece != current) {
            p.region = None;
        }
    }
}

impl Store for Regions {
    fn with_slots(slots: usize) -> Regions {
        Regions { pieces: Vec::new(), current: 0, used: REGION_BYTES, places: vec![NOWHERE; slots] }
    }

    fn insert(&mut self, slot: usize, row: &[u8]) -> Result<()> {
        if self.used + row.len() > REGION_BYTES {
            self.grow()?;
        }
        let (at, end) = (self.used, self.used + row.len());
        let piece = &mut self.pieces[self.current];
        let place = piece.region.as_mut().and_then(|region| region.get_mut(at..end));
        place.ok_or_else(|| LabError::Failed("a row is longer than a region".into()))?.copy_from_slice(row);
        piece.live += 1;
        self.places[slot] = (self.current as u32, at as u32);
        // As an arena does.
        self.used = end.next_multiple_of(8);
        Ok(())
    }

    fn delete(&mut self, slot: usize) {
        let piece = std::mem::replace(&mut self.places[slot], NOWHERE).0 as usize;
        self.pieces[piece].live -= 1;
        self.let_go(piece, self.current);
    }

    fn get(&self, slot: usize, bytes: usize) -> Option<&[u8]> {
        let (piece, at) = self.places[slot];
        self.pieces.get(piece as usize)?.region.as_deref()?.get(at as usize..at as usize + bytes)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn held(store: &Regions) -> usize {
        store.pieces.iter().filter(|p| p.region.is_some()).count()
    }

    #[test]
    fn a_region_goes_with_its_last_row() {
        let row = [7; 1 << 18];
        let mut store = Regions::with_slots(12);
        (0..12).for_each(|slot| store.insert(slot, &row).unwrap());
        assert_eq!(held(&store), 3);
        // One row of each region: none goes.
        [0, 4, 8].into_iter().for_each(|slot| store.delete(slot));
        assert_eq!(held(&store), 3);
        [1, 2, 3].into_iter().for_each(|slot| store.delete(slot));
        assert_eq!((held(&store), store.get(5, row.len())), (2, Some(&row[..])));
        // The last one is where rows go to: it stays until the next is needed.
        [9, 10, 11].into_iter().for_each(|slot| store.delete(slot));
        assert_eq!(held(&store), 2);
        store.insert(0, &row).unwrap();
        assert_eq!((held(&store), store.get(0, row.len())), (2, Some(&row[..])));
    }

    #[test]
    fn a_row_that_fits_nowhere_is_refused() {
        assert!(Regions::with_slots(1).insert(0, &vec![0; REGION_BYTES + 1]).is_err());
    }
}
