/** Scratch per thread of the kernels of sparse attention; sizes named as in `assembly`. */
import type { OpRecord, Program, TensorRef } from '@winnow/ops';
import { capacityOf } from './record-shapes.js';

// assembly/query-panels.ts and assembly/ops/subquadratic-attention.ts
const lanes = 64;
const panelRows = 256;
const span = 512;
const maxEdges = 160;
const landmarkRows = 40;
const maxGlobals = 16;

/** Bytes per thread; 0 for other ops. */
export function sparseScratchBytes(program: Program, { op, inputs }: OpRecord): number {
  const sizeOf = (name: string, axis: number): number => capacityOf(program, inputs[name] as TensorRef)[axis] as number;
  if (op === 'block-mean-append' || op === 'block-box-append') return 4 * (sizeOf('keys', 3) + sizeOf('values', 3)) + 64;
  if (op === 'key-columns-append') return 4 * sizeOf('keys', 3);
  if (op !== 'subquadratic-attention') return 0;
  const rowBytes = 4 * (sizeOf('q', 2) + sizeOf('values', 3));
  const panels = panelBytes(sizeOf('q', 2), sizeOf('values', 3));
  const rows = span * (16 + rowBytes) + 64 + maxEdges * (16 + rowBytes);
  const landmarks = landmarkRows * rowBytes + 64 + 4 * maxGlobals;
  return panels + rows + 8 * (16 + 4 * (sizeOf('values', 3) + 8)) + landmarks;
}

/** What `layPanels` lays out. */
function panelBytes(headDim: number, valueDim: number): number {
  return 4 * lanes * (headDim + Math.ceil(valueDim / 8) * 8 + 3) + (panelRows + 8) * 32;
}
