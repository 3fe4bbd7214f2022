/** Every op on the reference, between segments of a backend that has kernels for all others. */
import { expect, it } from 'vitest';
import {
  checkProgramCase,
  checkUnsupportedCase,
  float32Arithmetic,
  kernelCases,
  programCases,
  type ProgramCase,
} from '../src/index.js';
import { typicalCase } from './typical-case.js';
import { honestlyWithout } from './wrong-backends.js';

const arithmetic = float32Arithmetic();

it.each(Object.keys(kernelCases))('%s, in memory without a view', async (op) => {
  const backend = honestlyWithout(op, false);
  expect(await checkUnsupportedCase(backend, typicalCase(op), { arithmetic })).toEqual([]);
});

it.each(['matmul', 'kv-append', 'attention-partial'])('%s, in memory with a view', async (op) => {
  expect(await checkUnsupportedCase(honestlyWithout(op), typicalCase(op), { arithmetic })).toEqual([]);
});

it.each(['rope', 'kv-append', 'attention'])('a program without a kernel for %s', async (op) => {
  const concerned = programCases.find((programCase) =>
    programCase.create(arithmetic).program.records.some((record) => record.op === op),
  ) as ProgramCase;
  const options = { arithmetic, allowFallback: true };
  expect(await checkProgramCase(honestlyWithout(op, false), concerned, options)).toEqual([]);
});
