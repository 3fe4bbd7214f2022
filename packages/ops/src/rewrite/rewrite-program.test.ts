import { createRng } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { randomMemory, randomProgram, randomScalars } from '../../test/random-program.js';
import { draftOf, planDraft } from '../program/draft-program.js';
import { ProgramBuilder, type ProgramTensor } from '../program/program-builder.js';
import type { Program } from '../program/program.js';
import { createScalarBlock } from '../program/scalars.js';
import { validateProgram } from '../program/validate-program.js';
import { createReferenceBackend } from '../reference/backend.js';
import { fuseGatedMatmul } from './fuse-gated-matmul.js';
import { fuseNormMatmul } from './fuse-norm-matmul.js';
import { groupMatmuls } from './group-matmuls.js';
import { rewriteProgram, type RewriteRule } from './rewrite-program.js';

const rules = [groupMatmuls, fuseGatedMatmul, fuseNormMatmul];
const opsOf = ({ records }: Program): string[] => records.map(({ op }) => op);

/** All outputs and caches after two steps of a program with memory contents determined by the seed. */
async function resultsOf(program: Program, seed: number): Promise<unknown[]> {
  const backend = createReferenceBackend();
  const rng = createRng(seed);
  const buffers = new Map(
    [...randomMemory(program, rng)].map(([name, bytes]) => {
      const { usage } = program.buffers.find((buffer) => buffer.name === name) as Program['buffers'][number];
      const handle = backend.allocate({ sizeBytes: bytes.length, usage, label: name });
      backend.view(handle)?.set(bytes);
      return [name, handle];
    }),
  );
  const executable = await backend.prepare(program, { buffers });
  const results: unknown[] = [];
  for (const numTokens of [5, 1]) {
    const boundaries: string[] = [];
    const onBoundary = async (name: string): Promise<void> => void boundaries.push(name);
    await executable.run(randomScalars(program, numTokens, rng).words, { onBoundary });
    results.push(boundaries);
    for (const [name, { shape, dtype }] of program.outputs) {
      const length = numTokens * Number(shape.at(1) ?? 1);
      const target = dtype === 'i32' ? new Int32Array(length) : new Float32Array(length);
      await executable.read(name, target);
      results.push([name, target]);
    }
  }
  for (const [name, handle] of buffers) results.push([name, backend.view(handle)?.slice()]);
  await backend.dispose();
  return results;
}

describe('random programs', () => {
  it('a draft plans to the same program', () => {
    for (let seed = 0; seed < 60; seed++) {
      const program = randomProgram(seed, 5 + (seed % 25));
      expect(planDraft(draftOf(program))).toEqual(program);
    }
  });

  it.each([...rules.map((rule) => [rule.name, [rule]] as const), ['all rules', rules] as const])(
    '%s: valid programs with the same results, bit by bit',
    async (_name, chosen: readonly RewriteRule[]) => {
      let numChanged = 0;
      for (let seed = 0; seed < 40; seed++) {
        const program = randomProgram(seed, 12 + (seed % 25), true);
        const rewritten = rewriteProgram(program, chosen);
        validateProgram(rewritten);
        if (opsOf(rewritten).join() !== opsOf(program).join()) numChanged++;
        expect(await resultsOf(rewritten, seed), `seed ${seed}`).toEqual(await resultsOf(program, seed));
      }
      expect(numChanged).toBeGreaterThan(3);
    },
  );
});

/** A program of a few records over `x` `[T, 8]`. */
function programOf(
  write: (b: ProgramBuilder, x: ProgramTensor, weight: (name: string) => ProgramTensor) => void,
): Program {
  const b = new ProgramBuilder({ T: 4 });
  const table = b.external('table', 'weights', 'f32', [4, 8]);
  const x = b.activation('embedding-lookup', { table, tokens: b.scalar('tokens', ['T']) });
  write(b, x, (name) => b.external(name, 'weights', 'f32', [8, 8]));
  return b.build();
}

const norm = (b: ProgramBuilder, x: ProgramTensor): ProgramTensor =>
  b.activation('rms-norm', { x, weight: b.external('norm', 'weights', 'f32', [8]) }, { eps: 1e-5 });
const matmul = (b: ProgramBuilder, x: ProgramTensor, weight: ProgramTensor): ProgramTensor =>
  b.activation('matmul', { x, weight });

describe('query, key and value', () => {
  it('become adjacent although each is followed by RoPE', () => {
    const program = programOf((b, x, weight) => {
      for (const name of ['q', 'k', 'v']) {
        b.output(name, b.activation('scale', { x: matmul(b, x, weight(name)) }, { factor: 2 }));
      }
    });
    const expected = ['embedding-lookup', 'matmul', 'matmul', 'matmul', 'scale', 'scale', 'scale'];
    expect(opsOf(rewriteProgram(program, [groupMatmuls]))).toEqual(expected);
  });

  it('are not moved across boundaries, or for other activations', () => {
    const apart = programOf((b, x, weight) => {
      b.output('q', matmul(b, x, weight('q')));
      b.output('y', b.activation('scale', { x }, { factor: 3 }));
      b.boundary('host');
      b.output('k', matmul(b, x, weight('k')));
      b.output('v', matmul(b, b.reshape(b.rows(b.external('kv', 'kv', 'f32', [4, 8]), 0, 2), [2, 8]), weight('v')));
    });
    expect(rewriteProgram(apart, [groupMatmuls])).toEqual(apart);
  });

  it('do not move across a record that writes their inputs', () => {
    const program = programOf((b, x, weight) => {
      const keys = b.external('keys', 'kv', 'f32', [4, 8]);
      b.output('before', matmul(b, b.rows(keys, 0, 4), weight('k')));
      b.append('scatter-rows', { x, rows: b.scalar('rows', ['T']) }, {}, { y: keys });
      b.output('after', matmul(b, b.rows(keys, 0, 4), weight('v')));
    });
    expect(rewriteProgram(program, [groupMatmuls])).toEqual(program);
  });
});

describe('gate, up and activation', () => {
  const gated = (b: ProgramBuilder, gate: ProgramTensor, up: ProgramTensor): ProgramTensor =>
    b.activation('glu', { gate, up }, { kind: 'silu' });

  it('become one record', () => {
    const program = programOf((b, x, weight) =>
      b.output('y', gated(b, matmul(b, x, weight('gate')), matmul(b, x, weight('up')))),
    );
    const { records } = rewriteProgram(program, rules);
    expect(records.map(({ op }) => op)).toEqual(['embedding-lookup', 'gated-matmul']);
    expect(records[1]?.inputs).toMatchObject({ gate: { name: 'gate' }, up: { name: 'up' } });
    expect(records[1]?.attributes).toEqual({ kind: 'silu' });
  });

  it.each<[string, Parameters<typeof programOf>[0]]>([
    [
      'a product is an output',
      (b, x, weight) => {
        const gate = matmul(b, x, weight('gate'));
        b.output('gate', gate);
        b.output('y', gated(b, gate, matmul(b, x, weight('up'))));
      },
    ],
    [
      'a product has another reader',
      (b, x, weight) => {
        const up = matmul(b, x, weight('up'));
        b.output('y', gated(b, matmul(b, x, weight('gate')), up));
        b.output('z', b.activation('scale', { x: up }, { factor: 2 }));
      },
    ],
    [
      'they multiply different activations',
      (b, x, weight) => b.output('y', gated(b, matmul(b, x, weight('gate')), matmul(b, norm(b, x), weight('up')))),
    ],
    [
      'there is a bias',
      (b, x, weight) => {
        const up = b.activation('matmul', { x, weight: weight('up'), bias: b.external('bias', 'weights', 'f32', [8]) });
        b.output('y', gated(b, matmul(b, x, weight('gate')), up));
      },
    ],
  ])('are not fused when %s', (_name, write) => {
    const program = programOf(write);
    expect(rewriteProgram(program, [fuseGatedMatmul])).toEqual(program);
  });
});

describe('norm and quantization', () => {
  it('are fused into each matmul of the result', () => {
    const program = programOf((b, x, weight) => {
      const normed = norm(b, x);
      for (const name of ['q', 'k']) b.output(name, matmul(b, normed, weight(name)));
    });
    const { records } = rewriteProgram(program, [fuseNormMatmul]);
    expect(records.map(({ op }) => op)).toEqual(['embedding-lookup', 'norm-matmul', 'norm-matmul']);
    expect(records[1]?.inputs).toMatchObject({ x: program.records[1]?.inputs['x'], norm: { name: 'norm' } });
    expect(records[1]?.attributes).toEqual(program.records[1]?.attributes);
  });

  it.each<[string, Parameters<typeof programOf>[0]]>([
    [
      'the host reads the norm',
      (b, x, weight) => {
        const normed = norm(b, x);
        b.output('normed', normed);
        b.output('y', matmul(b, normed, weight('q')));
      },
    ],
    [
      'another op reads it',
      (b, x, weight) => {
        const normed = norm(b, x);
        b.output('z', b.activation('scale', { x: normed }, { factor: 2 }));
        b.output('y', matmul(b, normed, weight('q')));
      },
    ],
    [
      'the host comes in between',
      (b, x, weight) => {
        const normed = norm(b, x);
        b.boundary('host');
        b.output('y', matmul(b, normed, weight('q')));
      },
    ],
  ])('are not fused when %s', (_name, write) => {
    const program = programOf(write);
    expect(rewriteProgram(program, [fuseNormMatmul])).toEqual(program);
  });
});

it('keeps the scalar layout and the buffers, so that a rewritten program can replace the original', () => {
  const program = randomProgram(3, 30, true);
  const { scalars, symbols, buffers } = rewriteProgram(program, rules);
  expect({ scalars, symbols }).toEqual({ scalars: program.scalars, symbols: program.symbols });
  expect(buffers.slice(2)).toEqual(program.buffers.slice(2));
  expect(createScalarBlock(scalars, symbols).words.length).toBe(program.scalars.numWords);
});
