import { createRng, WinnowError } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { randomProgram } from '../../test/random-program.js';
import { ProgramBuilder } from './program-builder.js';
import { arenaBufferIndex, scalarBufferIndex, type Program, type TensorRef } from './program.js';
import { validateProgram } from './validate-program.js';

type Mutable<T> = { -readonly [K in keyof T]: T[K] extends ReadonlyMap<infer A, infer B> ? Map<A, B> : Mutable<T[K]> };

/** Two norms in place, one kept tensor, a cache, two segments. */
function example(): Program {
  const b = new ProgramBuilder({ T: 4 });
  const table = b.external('table', 'weights', 'q8_0', [10, 32]);
  const weight = b.external('norm', 'weights', 'f32', [32]);
  const keys = b.external('keys', 'kv', 'f16', [3, 1, 2, 32]);
  const values = b.external('values', 'kv', 'f16', [3, 1, 2, 32]);
  const slots = b.scalar('slots', ['T']);
  const x = b.activation('embedding-lookup', { table, tokens: b.scalar('tokens', ['T']) });
  const y = b.activation('rms-norm', { x, weight }, { eps: 1e-5 });
  const z = b.activation('add', { a: y, b: x });
  b.boundary('middle');
  const k = b.reshape(z, ['T', 1, 32]);
  b.append('kv-append', { k, v: k, slots }, {}, { keys, values });
  const { values: best, indices } = b.append('top-k', { x: z }, { k: 2 });
  b.output('best', best);
  b.output('indices', indices);
  return b.build();
}

/** Changes a deep copy of the program. */
function broken(program: Program, change: (copy: Mutable<Program>) => void): Program {
  const copy = structuredClone(program) as Mutable<Program>;
  change(copy);
  return copy as Program;
}

const rejected: [string, (p: Mutable<Program>) => void, string][] = [
  ['an offset that is not aligned', (p) => (p.records[1].inputs['weight'].byteOffset = 2), 'a multiple of 4'],
  ['a negative offset', (p) => (p.records[1].inputs['weight'].byteOffset = -4), 'end of norm'],
  ['an offset that is not a number', (p) => (p.records[0].inputs['table'].byteOffset = NaN), 'offset of table'],
  ['an offset past the end', (p) => (p.records[1].inputs['weight'].byteOffset = 4), 'end of norm'],
  ['a buffer that does not exist', (p) => (p.records[1].inputs['weight'].buffer = 99), 'no such buffer'],
  ['a buffer that shrank', (p) => (p.buffers[2].sizeBytes -= 1), 'end of table'],
  ['an input where nothing was written', (p) => (p.records[1].inputs['x'].byteOffset += 512), 'values written before'],
  ['an input that is half outside', (p) => (p.records[1].inputs['x'].byteOffset += 64), 'bytes of embedding-lookup'],
  [
    'an input of clobbered memory',
    (p) => (p.records[2].outputs['y'].byteOffset = p.records[0].outputs['y'].byteOffset),
    'separate memory',
  ],
  [
    'a record that overwrites what is read later',
    (p) => {
      p.records[1].outputs['y'].byteOffset = p.records[0].outputs['y'].byteOffset;
      p.records[2].inputs['a'].byteOffset = p.records[0].outputs['y'].byteOffset;
    },
    'its own values',
  ],
  [
    'records in another order',
    (p) => void p.records.splice(0, 2, p.records[1], p.records[0]),
    'bytes of embedding-lookup',
  ],
  ['a lost record', (p) => void p.records.splice(1, 1), 'bytes of rms-norm'],
  ['a missing output', (p) => delete (p.records[4].outputs as Record<string, TensorRef>)['indices'], 'output indices'],
  [
    'an output of another name',
    (p) => (p.records[0].outputs['z'] = p.records[0].outputs['y']),
    'outputs, expected y, got z',
  ],
  ['an output of another dtype', (p) => (p.records[4].outputs['indices'].dtype = 'f32'), 'expected i32'],
  ['an output of another shape', (p) => (p.records[4].outputs['values'].shape = ['T', 3]), 'expected f32 [T, 2]'],
  ['an input of another dtype', (p) => (p.records[1].inputs['x'].dtype = 'f16'), 'dtype, expected f32'],
  ['an input of another shape', (p) => (p.records[1].inputs['x'].shape = ['T', 16]), 'H = 16'],
  [
    'a symbol without capacity',
    (p) => {
      for (const record of p.records)
        for (const tensor of [...Object.values(record.inputs), ...Object.values(record.outputs)])
          if (tensor.shape[0] === 'T') tensor.shape[0] = 'Z';
    },
    'got Z',
  ],
  [
    'outputs that overlap',
    (p) => (p.records[4].outputs['indices'].byteOffset = p.records[4].outputs['values'].byteOffset),
    'memory of output indices',
  ],
  [
    'an output over an input',
    (p) => (p.records[4].outputs['values'].byteOffset = p.records[4].inputs['x'].byteOffset),
    'memory of input x',
  ],
  ['an output half over its in-place input', (p) => (p.records[2].outputs['y'].byteOffset -= 64), 'memory of input'],
  ['a write to weights', (p) => (p.buffers[4].usage = 'weights'), 'weights memory'],
  [
    'a write to the scalars',
    (p) => {
      p.records[4].outputs['indices'].buffer = scalarBufferIndex;
      p.records[4].outputs['indices'].byteOffset = 0;
    },
    'scalars memory',
  ],
  [
    'an update of memory that holds nothing',
    (p) => {
      p.records[3].outputs['keys'].buffer = arenaBufferIndex;
      p.buffers[arenaBufferIndex].sizeBytes += 4096;
      p.peakBytes += 4096;
      p.records[3].outputs['keys'].byteOffset = 1024;
    },
    'values written before',
  ],
  ['an unknown op', (p) => (p.records[1].op = 'rms-morn'), 'rms-morn'],
  ['an attribute of another kind', (p) => (p.records[1].attributes['eps'] = 'small'), 'eps'],
  ['an attribute that no word can hold', (p) => (p.records[1].attributes['eps'] = 0.1), 'attribute eps'],
  [
    'a missing attribute with default',
    (p) => delete (p.records[0].attributes as Record<string, number>)['scale'],
    'attribute scale',
  ],
  ['a gap between segments', (p) => (p.segments[1].begin += 1), 'a range from 3'],
  ['segments that overlap', (p) => (p.segments[1].begin -= 1), 'a range from 3'],
  ['segments that end early', (p) => (p.segments[1].end -= 1), 'records covered'],
  ['a segment that runs backwards', (p) => (p.segments[1].end = 0), 'a range from 3'],
  ['no segments', (p) => (p.segments = []), 'records covered'],
  [
    'a program output of dead memory',
    (p) => void p.outputs.set('x', structuredClone(p.records[0].outputs['y'])),
    'output x',
  ],
  [
    'a program output outside of its buffer',
    (p) => ((p.outputs.get('best') as Mutable<TensorRef>).byteOffset = 1 << 20),
    'end of top-k',
  ],
  ['a wrong peak', (p) => (p.peakBytes -= 1), 'peak bytes'],
  ['a scalar block that is too small', (p) => (p.scalars.numWords -= 1), 'bytes of the scalar block'],
  [
    'scalar slots that overlap',
    (p) => ((p.scalars.slots.get('tokens') as { wordOffset: number }).wordOffset -= 1),
    'words of tokens',
  ],
  ['a symbol without a word', (p) => void p.scalars.slots.delete('T'), 'symbols: T'],
  ['an arena that is no arena', (p) => (p.buffers[arenaBufferIndex].usage = 'kv'), 'usages'],
];

describe('validateProgram', () => {
  it('accepts the example', () => {
    expect(() => validateProgram(example())).not.toThrow();
    expect(() => validateProgram(structuredClone(example()))).not.toThrow();
  });

  it.each(rejected)('rejects %s', (_name, change, message) => {
    const program = broken(example(), change);
    expect(() => validateProgram(program)).toThrow(message);
    try {
      validateProgram(program);
    } catch (error) {
      expect(WinnowError.isInstance(error)).toBe(true);
    }
  });

  it('rejects every arena tensor moved to another random offset', () => {
    const rng = createRng(5);
    let numMoved = 0;
    for (let seed = 1; seed <= 40; seed++) {
      const program = broken(randomProgram(seed, 12), (p) => {
        const written = p.records
          .flatMap(({ inputs }) => Object.values(inputs))
          .filter(({ buffer }) => buffer === arenaBufferIndex);
        const victim = written[rng.nextInt(written.length)];
        victim.byteOffset += 64 * (1 + rng.nextInt(3)) * (victim.byteOffset >= 192 && rng.nextInt(2) === 0 ? -1 : 1);
        numMoved++;
      });
      expect(() => validateProgram(program), `seed ${seed}`).toThrow();
    }
    expect(numMoved).toBe(40);
  });
});
