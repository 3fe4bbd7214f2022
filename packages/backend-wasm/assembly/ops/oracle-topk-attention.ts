/**
 * Attention of every query head to the keys of its k largest logits. Units: (token, head), or (token, KV head) for masses.
 * Tensors: as in `kv-cache-view.ts`, 8 y, 9 pairs, 10 mass. Attributes: 4 k.
 */
import { enterCache, keyOf, listVisible, positionOfToken, sequenceOfToken, valueOf } from '../attention/kv-cache-view';
import { addMass, clearMass, enterMass, massOf } from '../attention/key-mass';
import { addressOf, attributeF, attributeI, dim, localScratch } from '../runtime/record';
import {
  ENTRY_BYTES,
  ROW_STATE,
  clearRow,
  dots4,
  pushRows,
  setEntry,
  setRowSoftmax,
} from '../attention/online-softmax-row';
import { selectLargest } from '../attention/select-top-k';
import { tanh4 } from '../simd/vector';
import { takeUnits } from '../runtime/threads';

/** Rows that are decoded at a time. */
const ROWS: i32 = 64;

export function oracleTopkAttention(): void {
  enterCache();
  const numHeads = dim(0, 1);
  const headDim = dim(0, 2);
  const valueDim = dim(4, 3);
  const numKvHeads = dim(3, 1);
  const k = attributeI(4);
  const scale = attributeF(0);
  const cap = attributeF(3);
  const maxSlots = <usize>(dim(6, 1) * dim(3, 2));
  const list = localScratch();
  const logits = list + (maxSlots << 2);
  const work = logits + (maxSlots << 2) + 16;
  const chosen = work + (maxSlots << 2);
  const keyRows = chosen + (maxSlots << 2) + 64;
  const valueRows = keyRows + <usize>ROWS * ((<usize>headDim) << 2);
  const entries = valueRows + <usize>ROWS * ((<usize>valueDim) << 2);
  const state = entries + <usize>ROWS * ENTRY_BYTES;
  setRowSoftmax(scale, cap);
  const groupSize = numHeads / numKvHeads;
  const hasMass = enterMass(10);
  const logical = hasMass ? state + ROW_STATE + ((<usize>valueDim) << 2) + 16 : 0;
  const headsOfUnit = hasMass ? groupSize : 1;
  const numUnits = dim(0, 0) * (numHeads / headsOfUnit);
  for (let unit = takeUnits(1); unit < numUnits; unit = takeUnits(1)) {
    const token = (unit * headsOfUnit) / numHeads;
    const kvHead = ((unit * headsOfUnit) % numHeads) / groupSize;
    clearMass(token, token + 1, kvHead);
    const count = listVisible(positionOfToken(token), sequenceOfToken(token), list, 0, logical);
    for (let row = unit * headsOfUnit; row < (unit + 1) * headsOfUnit; row++) {
      const query = addressOf(0) + <usize>row * ((<usize>headDim) << 2);
      for (let i = 0; i < count; i += 4) {
        const last = count - 1;
        let v = dots4(
          query,
          keyOf(load<i32>(list + ((<usize>i) << 2)), kvHead, keyRows),
          keyOf(load<i32>(list + ((<usize>min<i32>(i + 1, last)) << 2)), kvHead, keyRows + ((<usize>headDim) << 2)),
          keyOf(load<i32>(list + ((<usize>min<i32>(i + 2, last)) << 2)), kvHead, keyRows + ((<usize>headDim) << 3)),
          keyOf(load<i32>(list + ((<usize>min<i32>(i + 3, last)) << 2)), kvHead, keyRows + <usize>headDim * 12),
          headDim,
        );
        v = f32x4.mul(v, f32x4.splat(scale));
        if (cap !== 0) v = f32x4.mul(f32x4.splat(cap), tanh4(f32x4.div(v, f32x4.splat(cap))));
        v128.store(logits + ((<usize>i) << 2), v);
      }
      const numChosen = selectLargest(logits, count, k, work, chosen);
      clearRow(state, valueDim);
      for (let begin = 0; begin < numChosen; begin += ROWS) {
        const rows = min<i32>(ROWS, numChosen - begin);
        for (let i = 0; i < rows; i++) {
          const index = load<i32>(list + ((<usize>load<i32>(chosen + ((<usize>(begin + i)) << 2))) << 2));
          const key = keyOf(index, kvHead, keyRows + <usize>i * ((<usize>headDim) << 2));
          setEntry(entries, i, key, valueOf(index, kvHead, valueRows + <usize>i * ((<usize>valueDim) << 2)), 0);
        }
        pushRows(query, headDim, valueDim, entries, rows, state);
      }
      const sum = load<f32>(state, 4);
      const factor: f32 = sum === 0 ? 0 : 1 / sum;
      const y = addressOf(8) + <usize>row * ((<usize>valueDim) << 2);
      for (let i: usize = 0; i < (<usize>valueDim) << 2; i += 4) {
        store<f32>(y + i, load<f32>(state + ROW_STATE + i) * factor);
      }
      for (let i = 0; hasMass && i < numChosen; i++) {
        const at = (<usize>load<i32>(chosen + ((<usize>i) << 2))) << 2;
        const weight = Math.exp(<f64>load<f32>(logits + at) - <f64>load<f32>(state));
        addMass(massOf(token, kvHead), load<i32>(logical + at), <f32>weight * factor);
      }
      if (row % numHeads === 0) store<i32>(addressOf(9) + ((<usize>token) << 2), numChosen);
    }
  }
}
