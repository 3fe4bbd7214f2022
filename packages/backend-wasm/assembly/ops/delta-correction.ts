/**
 * Corrects sparse attention by dense attention at anchors. Work items: (KV head, tile of anchors), then tokens, then
 * sequences, with barriers in between.
 */
import { enterListed, flashAttendListed, layFlashAttention } from '../attention/flash-attention';
import * as cache from '../attention/kv-cache-view';
import { LANES } from '../attention/query-panels';
import { tokensOfTile } from '../attention/query-tiles';
import { nextRun, openRuns, runBegin, runEnd, stateFrom, stateTo } from '../attention/state-runs';
import * as op from '../operands/delta-correction.generated';
import { intAt, setInt } from '../runtime/arrays';
import { localScratch } from '../runtime/record';
import { nextItems, phaseBarrier } from '../runtime/threads';

/** Reference of a token that is corrected by the difference in the state of its sequence. */
const FROM_STATE: i32 = -1;

let numAnchors: i32 = 0;
let rowBytes: usize = 0;

// scratch of each thread
let anchors: usize = 0; // i32 [numAnchors] tokens
let references: usize = 0; // i32 [T] the anchor of a token, or FROM_STATE

export function deltaCorrection(): void {
  deltaCorrectionScratch(localScratch());
  enterListed(op.y.address);
  rowBytes = <usize>cache.numHeads * cache.valueStride;
  findAnchors();
  attendAnchors();
  phaseBarrier();
  correctTokens();
  phaseBarrier();
  storeStates();
}

/** Reads the record, lays out scratch and returns its end. */
export function deltaCorrectionScratch(base: usize): usize {
  cache.enterCache();
  anchors = base;
  references = anchors + ((<usize>cache.numTokens) << 2);
  return layFlashAttention((references + ((<usize>cache.numTokens) << 2) + 15) & ~15);
}

function openSequences(): void {
  openRuns(op.sequences.address, op.stateFrom.address, op.stateTo.address, op.sequences.numTokens);
}

/** Position of the anchor that the open run continues from; negative when there is none. */
function anchorOfState(): i32 {
  const isFresh = stateFrom < 0 || cache.positionOfToken(runBegin) === 0;
  return isFresh ? -1 : intAt(op.anchor.address, stateFrom) - 1;
}

function findAnchors(): void {
  const delta = op.attributes.delta;
  numAnchors = 0;
  openSequences();
  while (nextRun()) {
    let last = anchorOfState();
    let reference = FROM_STATE;
    for (let t = runBegin; t < runEnd; t++) {
      const position = cache.positionOfToken(t);
      if (last < 0 || last > position || last < position - (position % delta)) {
        last = position;
        reference = t;
        setInt(anchors, numAnchors, t);
        numAnchors += 1;
      }
      setInt(references, t, reference);
    }
  }
}

/** Dense attention of the anchors; a tile ends with its sequence. */
function attendAnchors(): void {
  const tokensPerTile = tokensOfTile(LANES);
  let tile = 0;
  let taken = nextItems(1);
  for (let begin = 0; begin < numAnchors;) {
    let end = begin + 1;
    const sequence = cache.sequenceOfToken(intAt(anchors, begin));
    while (end < numAnchors && end - begin < tokensPerTile && cache.sequenceOfToken(intAt(anchors, end)) === sequence) {
      end += 1;
    }
    for (let head = 0; head < cache.numKvHeads; head++, tile++) {
      if (tile !== taken) continue;
      flashAttendListed(anchors, begin, end, head);
      taken = nextItems(1);
    }
    begin = end;
  }
}

/** The outputs of tokens that are not anchors, and the pairs of all. */
function correctTokens(): void {
  for (let t = nextItems(1); t < cache.numTokens; t = nextItems(1)) {
    const reference = intAt(references, t);
    const offset = <usize>t * rowBytes;
    setInt(op.pairs.address, t, reference === t ? countKeys(t) : 0);
    if (reference === t) continue;
    if (reference === FROM_STATE) {
      const row = intAt(op.stateFrom.address, cache.sequenceOfToken(t));
      addRow(op.y.address + offset, op.x.address + offset, op.difference.address + <usize>row * rowBytes);
    } else {
      const anchor = <usize>reference * rowBytes;
      addDifference(op.y.address + offset, op.x.address + offset, op.y.address + anchor, op.x.address + anchor);
    }
  }
}

function countKeys(token: i32): i32 {
  const sequence = cache.sequenceOfToken(token);
  const context = cache.contextOfSequence(sequence);
  let seen = 0;
  for (let slot = 0; slot < context;) {
    const count = cache.slotsInBlock(slot, context - slot);
    const at = cache.positionsAt(cache.slotIndex(sequence, slot));
    seen += cache.countVisible(cache.positionOfToken(token), at, count, 0, cache.maxDistance);
    slot += count;
  }
  return seen;
}

/** `y = x + difference` of a row. */
function addRow(y: usize, x: usize, difference: usize): void {
  const whole = rowBytes & ~15;
  let i: usize = 0;
  for (; i < whole; i += 16) v128.store(y + i, f32x4.add(v128.load(x + i), v128.load(difference + i)));
  for (; i < rowBytes; i += 4) store<f32>(y + i, load<f32>(x + i) + load<f32>(difference + i));
}

/** `y = x + (dense - sparse)` of a row; the difference is rounded as it is in the state. */
function addDifference(y: usize, x: usize, dense: usize, sparse: usize): void {
  const whole = rowBytes & ~15;
  let i: usize = 0;
  for (; i < whole; i += 16) {
    const difference = f32x4.sub(v128.load(dense + i), v128.load(sparse + i));
    v128.store(y + i, f32x4.add(v128.load(x + i), difference));
  }
  for (; i < rowBytes; i += 4) {
    const difference = load<f32>(dense + i) - load<f32>(sparse + i);
    store<f32>(y + i, load<f32>(x + i) + difference);
  }
}

/** Stores the last anchor of each sequence and its difference. */
function storeStates(): void {
  openSequences();
  let run = 0;
  for (let taken = nextItems(1); nextRun(); run++) {
    if (run !== taken) continue;
    taken = nextItems(1);
    const to = op.difference.address + <usize>stateTo * rowBytes;
    const reference = intAt(references, runEnd - 1);
    if (reference === FROM_STATE) {
      setInt(op.anchor.address, stateTo, anchorOfState() + 1);
      if (stateFrom !== stateTo) memory.copy(to, op.difference.address + <usize>stateFrom * rowBytes, rowBytes);
      continue;
    }
    setInt(op.anchor.address, stateTo, cache.positionOfToken(reference) + 1);
    const anchor = <usize>reference * rowBytes;
    for (let i: usize = 0; i < rowBytes; i += 4) {
      store<f32>(to + i, load<f32>(op.y.address + anchor + i) - load<f32>(op.x.address + anchor + i));
    }
  }
}
