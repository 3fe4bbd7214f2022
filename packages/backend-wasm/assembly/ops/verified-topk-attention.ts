/** Attends to heavy pages and to a random sample of the other keys, which grows until the estimated error is small enough. */
import { enterMass, hasMass } from '../attention/key-mass';
import * as cache from '../attention/kv-cache-view';
import * as open from '../attention/page-bounds';
import { sampleLevel, sampleStream } from '../attention/position-hash';
import * as panels from '../attention/query-panels';
import * as tile from '../attention/query-tiles';
import { BINS_BYTES, selectLargest } from '../attention/select-top-k';
import {
  attendSlots,
  gatherKeys,
  gatherValues,
  layGathered,
  numListed,
  openList,
  scoreGathered,
} from '../attention/slot-list';
import * as op from '../operands/verified-topk-attention.generated';
import { floatAt, intAt, setFloat, setInt } from '../runtime/arrays';
import { MAX_EXPONENT, MAX_PAGE_EXPONENT } from '../runtime/layout.generated';
import { localScratch } from '../runtime/record';
import { fma, sum4, weight4 } from '../simd/vector';

/** Exponent of pages that are read as a whole. */
const CERTAIN: i32 = i32.MIN_VALUE;
const LN2: f32 = 0.6931471805599453;
/** Exponents per unit of a logit: `1 / (2 ln 2)`. */
const PER_LOGIT: f32 = 0.7213475204444817;

/** Slots at the beginning of the list that are read with certainty, slots listed for this round, and candidates. */
let numCertain: i32 = 0;
let numDrawn: i32 = 0;
let numRandom: i32 = 0;
let isGood: bool = false;

// scratch
let list: usize = 0; // i32 slots of the cache to attend to
let logical: usize = 0; // i32 logical slot of each slot of the list, for masses
let biases: usize = 0; // f32 minus the logarithm of the probability of each slot of the list
let candidates: usize = 0; // i32 slots that may be left out
let candidateLogical: usize = 0;
let candidatePositions: usize = 0; // later the round from which the candidate is drawn
let candidateExponents: usize = 0; // i32 of the probability in the first round
let exponents: usize = 0; // i32 [open pages] relative to the best page, or CERTAIN
let heavy: usize = 0; // i32 [open pages] pages of the budget
let work: usize = 0;
let variances: usize = 0; // f64 [LANES]
let weights: usize = 0; // f32 [4]

export function verifiedTopkAttention(): void {
  verifiedTopkAttentionScratch(localScratch());
  enterMass(op.mass.isPresent ? op.mass.address : 0);
  tile.attendGroups(cache.groupSize, attendGroup);
}

/** Reads the record, lays out scratch and returns its end. */
export function verifiedTopkAttentionScratch(base: usize): usize {
  cache.enterCache();
  const slotBytes = ((<usize>cache.maxSlots) << 2) + 16;
  list = layGathered(panels.layPanels(base));
  logical = list + slotBytes;
  biases = logical + slotBytes;
  candidates = biases + slotBytes;
  candidateLogical = candidates + slotBytes;
  candidatePositions = candidateLogical + slotBytes;
  candidateExponents = candidatePositions + slotBytes;
  exponents = open.layPages(candidateExponents + slotBytes);
  heavy = exponents + open.pageBytes;
  work = heavy + open.pageBytes;
  variances = (work + open.pageBytes + BINS_BYTES + 15) & ~7;
  weights = variances + ((<usize>panels.LANES) << 3);
  return weights + 16;
}

function attendGroup(firstHead: i32): void {
  openList(list, 0, hasMass ? logical : 0);
  open.openPages(firstHead);
  rankPages();
  const shift = sampleShift();
  listPages(shift);
  let isComplete = numRandom === 0;
  draw(0, isComplete);
  isGood = true;
  tile.attendHeads(attendSample);
  for (let round = 1; !isComplete; round++) {
    const numSampled = numDrawn - numCertain;
    if (numSampled > 1 && isGood) break;
    isComplete = 2 * numSampled >= numRandom;
    draw(round, isComplete);
    isGood = true;
    tile.attendHeads(attendSample);
  }
  if (hasMass) tile.attendHeads(addMasses);
  setInt(op.pairs.address, tile.token * cache.numKvHeads + tile.kvHead, numDrawn);
}

/** Computes the exponents of the open pages, and which are heavy. */
function rankPages(): void {
  const nearness = open.best;
  for (let i = 0; i < open.numOpen; i++) setFloat(nearness, i, -Infinity);
  for (let g = 0; g < cache.groupSize; g++) {
    const own = open.bounds + <usize>g * open.pageBytes;
    let top: f32 = -Infinity;
    for (let i = 0; i < open.numOpen; i++) top = max<f32>(top, floatAt(own, i));
    for (let i = 0; i < open.numOpen; i++) {
      setFloat(nearness, i, max<f32>(floatAt(nearness, i), floatAt(own, i) - top));
    }
  }
  for (let i = 0; i < open.numOpen; i++) setInt(exponents, i, pageExponent(floatAt(nearness, i)));
  const numHeavy = selectLargest(nearness, open.numOpen, op.attributes.budget, work, heavy);
  for (let i = 0; i < numHeavy; i++) setInt(exponents, intAt(heavy, i), CERTAIN);
}

function pageExponent(nearness: f32): i32 {
  if (nearness !== nearness) return CERTAIN; // NaN and infinite logits are always read
  return <i32>min<f32>(<f32>MAX_PAGE_EXPONENT, floor<f32>(-nearness * PER_LOGIT));
}

/** What to add to the exponents, so that at least `sample` keys are expected, and less than twice as many. */
function sampleShift(): i32 {
  const sample = <f64>op.attributes.sample;
  let expected: f64 = 0;
  for (let i = 0; i < open.numOpen; i++) {
    const exponent = intAt(exponents, i);
    if (exponent !== CERTAIN) expected += <f64>floatAt(open.sizes, i) / <f64>((<i64>1) << exponent);
  }
  let shift = 0;
  for (; expected >= 2 * sample && shift < MAX_EXPONENT; shift++) expected *= 0.5;
  for (; expected > 0 && expected < sample && shift > -MAX_PAGE_EXPONENT; shift--) expected *= 2;
  return shift;
}

/** Lists the slots of pages that are read as a whole, and the candidates with the round from which they are drawn. */
function listPages(shift: i32): void {
  for (let i = 0; i < open.numOpen; i++) {
    let exponent = intAt(exponents, i);
    if (exponent !== CERTAIN) exponent = min<i32>(MAX_EXPONENT, exponent + shift);
    setInt(exponents, i, exponent);
    if (exponent <= 0) open.listPage(intAt(open.pages, i));
  }
  numCertain = numListed;
  openList(candidates, candidatePositions, hasMass ? candidateLogical : 0);
  const stream = sampleStream(op.attributes.seed, tile.position, tile.kvHead);
  for (let i = 0; i < open.numOpen; i++) {
    const exponent = intAt(exponents, i);
    if (exponent <= 0) continue;
    const before = numListed;
    open.listPage(intAt(open.pages, i));
    for (let j = before; j < numListed; j++) {
      setInt(candidateExponents, j, exponent);
      setInt(candidatePositions, j, exponent - sampleLevel(stream, intAt(candidatePositions, j)));
    }
  }
  numRandom = numListed;
  for (let i = 0; i < numCertain; i++) setFloat(biases, i, 0);
}

/** Appends the candidates that are drawn in a round to the certain slots of the list. */
function draw(round: i32, isComplete: bool): void {
  numDrawn = numCertain;
  for (let i = 0; i < numRandom; i++) {
    if (!isComplete && intAt(candidatePositions, i) > round) continue;
    setInt(list, numDrawn, intAt(candidates, i));
    if (hasMass) setInt(logical, numDrawn, intAt(candidateLogical, i));
    const exponent = isComplete ? 0 : max<i32>(0, intAt(candidateExponents, i) - round);
    setFloat(biases, numDrawn, <f32>exponent * LN2);
    numDrawn += 1;
  }
}

/** Attends to the listed slots, and writes the output of each lane and its estimated relative error. */
function attendSample(): void {
  attendSlots(list, numDrawn, 0, biases);
  for (let lane = 0; lane < panels.numLanes; lane++) {
    panels.writeLane(lane, outputOf(lane));
    store<f64>(variances + ((<usize>lane) << 3), 0);
  }
  addVariances();
  for (let lane = 0; lane < panels.numLanes; lane++) {
    const variance = load<f64>(variances + ((<usize>lane) << 3));
    let squares: f64 = 0;
    for (let i = 0; i < cache.valueDim; i++) {
      const y = <f64>floatAt(outputOf(lane), i);
      squares += y * y;
    }
    const error = variance === 0 ? 0 : <f64>op.attributes.quantile * Math.sqrt(variance / squares);
    setFloat(op.errorEstimate.address, <i32>panels.rowOfLane(lane), <f32>error);
    if (!(error <= <f64>op.attributes.epsilon)) isGood = false;
  }
}

function outputOf(lane: i32): usize {
  return op.y.address + panels.rowOfLane(lane) * cache.valueStride;
}

/** Adds up `(1 - p) (weight / p)^2 |v - y|^2` of the drawn candidates for each lane. */
function addVariances(): void {
  for (let begin = numCertain; begin < numDrawn; begin += panels.PANEL_ROWS) {
    const rows = min<i32>(panels.PANEL_ROWS, numDrawn - begin);
    const offset = (<usize>begin) << 2;
    gatherKeys(list + offset, rows);
    const values = gatherValues(list + offset, rows);
    for (let panel = 0; panel < panels.numPanels; panel++) {
      scoreGathered(panel, rows, biases + offset);
      const end = panels.lastLaneOf(panel);
      for (let lane = panels.firstLaneOf(panel); lane < end; lane += 4) {
        addVariances4(lane, min<i32>(end, lane + 4), panel, rows, biases + offset, values);
      }
    }
  }
}

/** The same for lanes `[lane, end)`, at most four, of a panel with its logits. */
function addVariances4(lane: i32, end: i32, panel: i32, rows: i32, bias: usize, values: usize): void {
  const top = panels.maximaOf(lane);
  const inverse = panels.inverseSums(lane);
  let at = panels.logitsOf(0) + ((<usize>(lane - panels.firstLaneOf(panel))) << 2);
  for (let j = 0; j < rows; j++, at += panels.rowBytes) {
    const exponent = floatAt(bias, j);
    if (exponent === 0) continue;
    v128.store(weights, f32x4.mul(weight4(f32x4.sub(v128.load(at), top)), inverse));
    const share = 1 - Math.exp(-(<f64>exponent));
    for (let l = lane; l < end; l++) {
      const weight = <f64>floatAt(weights, l - lane);
      const variance =
        share * weight * weight * <f64>squaredDistance(values + <usize>j * cache.valueStride, outputOf(l));
      const to = variances + ((<usize>l) << 3);
      store<f64>(to, load<f64>(to) + variance);
    }
  }
}

/** `|v - y|^2` of two rows of values. */
function squaredDistance(v: usize, y: usize): f32 {
  const whole = cache.valueStride & ~15;
  let sum = f32x4.splat(0);
  let i: usize = 0;
  for (; i < whole; i += 16) {
    const difference = f32x4.sub(v128.load(v + i), v128.load(y + i));
    sum = fma(difference, difference, sum);
  }
  let total = sum4(sum);
  for (; i < cache.valueStride; i += 4) {
    const difference = load<f32>(v + i) - load<f32>(y + i);
    total += difference * difference;
  }
  return total;
}

/** Attends once more and adds the masses of the listed slots. */
function addMasses(): void {
  attendSlots(list, numDrawn, 0, biases);
  attendSlots(list, numDrawn, logical, biases);
}
