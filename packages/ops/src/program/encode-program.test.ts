import { createRng, tensorBytes, type Rng } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { randomMemory, randomProgram, randomScalars } from '../../test/random-program.js';
import { opSpec, opSpecs } from '../ops/registry.js';
import { createReferenceBackend } from '../reference/backend.js';
import type { TensorView } from '../spec/op-spec.js';
import { decodeProgram, encodeProgram, resolveDims, type DecodedTensor } from './encode-program.js';
import { ProgramBuilder } from './program-builder.js';
import { arenaBufferIndex, type Program } from './program.js';
import { validateProgram } from './validate-program.js';

/** Places all buffers of a program in one memory, with gaps. */
function layOut(program: Program): { addresses: number[]; sizeBytes: number } {
  const addresses: number[] = [];
  let at = 192;
  for (const { sizeBytes } of program.buffers) {
    addresses.push(at);
    at += Math.ceil((sizeBytes + 1) / 64) * 64 + 64;
  }
  return { addresses, sizeBytes: at };
}

/** Executes encoded words on one memory, without the program that they encode. */
function interpret(words: Int32Array, memory: ArrayBuffer, scalars: Int32Array): void {
  const view = ({ address, dtype, dims }: DecodedTensor): TensorView => {
    const shape = resolveDims(dims, scalars);
    const numValues = shape.reduce((product, dim) => product * dim, 1);
    if (dtype === 'f32') return { dtype, shape, data: new Float32Array(memory, address, numValues) };
    if (dtype === 'i32') return { dtype, shape, data: new Int32Array(memory, address, numValues) };
    return { dtype, shape, data: new Uint8Array(memory, address, tensorBytes(dtype, [numValues])) };
  };
  const views = (tensors: Readonly<Record<string, DecodedTensor>>): Record<string, TensorView> =>
    Object.fromEntries(Object.entries(tensors).map(([name, tensor]) => [name, view(tensor)]));
  for (const { op, inputs, outputs, attributes } of decodeProgram(words)) {
    opSpec(op).bindReference({ inputs: views(inputs), outputs: views(outputs), attributes })();
  }
}

async function expectSame(program: Program, rng: Rng): Promise<void> {
  const { addresses, sizeBytes } = layOut(program);
  const memory = new ArrayBuffer(sizeBytes);
  const contents = randomMemory(program, rng);
  const backend = createReferenceBackend();
  const buffers = new Map(
    [...contents].map(([name, bytes]) => {
      const usage = program.buffers.find((buffer) => buffer.name === name)?.usage ?? 'kv';
      const handle = backend.allocate({ sizeBytes: bytes.length, usage, label: name });
      backend.view(handle)?.set(bytes);
      new Uint8Array(memory).set(bytes, addresses[program.buffers.findIndex((buffer) => buffer.name === name)]);
      return [name, handle] as const;
    }),
  );
  const executable = await backend.prepare(program, { buffers });
  const words = encodeProgram(program, (buffer) => addresses[buffer]);
  for (const numTokens of [6, 1, 4, 0]) {
    const scalars = randomScalars(program, numTokens, rng).words;
    await executable.run(scalars);
    new Int32Array(memory, addresses[0], scalars.length).set(scalars);
    interpret(words, memory, scalars);
    for (const [name, { byteOffset, dtype, shape }] of program.outputs) {
      const numValues = shape.reduce<number>((product, dim) => product * (dim === 'T' ? numTokens : Number(dim)), 1);
      const [Numbers, bytesPer] = dtype === 'i32' ? ([Int32Array, 4] as const) : ([Float32Array, 4] as const);
      const expected = new Numbers(numValues);
      await executable.read(name, expected);
      const actual = new Uint8Array(memory, addresses[arenaBufferIndex] + byteOffset, numValues * bytesPer);
      expect(actual, `${name} of ${numTokens} tokens`).toEqual(new Uint8Array(expected.buffer));
    }
    for (const [name, handle] of buffers) {
      const at = addresses[program.buffers.findIndex((buffer) => buffer.name === name)];
      expect(new Uint8Array(memory, at, handle.sizeBytes), name).toEqual(backend.view(handle));
    }
  }
  await backend.dispose();
}

describe('encoded programs: contents', () => {
  it('suffice for an interpreter with results bit-identical to the reference backend', async () => {
    for (let seed = 1; seed <= 25; seed++) await expectSame(randomProgram(seed, 4 + seed), createRng(seed));
  });

  it('decode to the original records', () => {
    for (let seed = 1; seed <= 20; seed++) {
      const program = randomProgram(seed, 12);
      const addresses = program.buffers.map((_, index) => index * 2 ** 33 + 2 ** 31);
      const decoded = decodeProgram(encodeProgram(program, (buffer) => addresses[buffer]));
      expect(decoded).toHaveLength(program.records.length);
      for (const [index, { op, layer, inputs, outputs, attributes }] of program.records.entries()) {
        expect(decoded[index]).toMatchObject({ op, layer, attributes });
        for (const [name, tensor] of [...Object.entries(inputs), ...Object.entries(outputs)]) {
          const found = decoded[index].inputs[name] ?? decoded[index].outputs[name];
          if (name in inputs && name in outputs) continue;
          expect(found.address).toBe(addresses[tensor.buffer] + tensor.byteOffset);
          expect(found.dtype).toBe(tensor.dtype);
          expect(found.dims).toEqual(
            tensor.shape.map((dim) =>
              typeof dim === 'number' ? dim : -1 - (program.scalars.slots.get(dim)?.wordOffset ?? NaN),
            ),
          );
        }
      }
    }
  });

  it('are exactly these words for a small record', () => {
    const b = new ProgramBuilder({ S: 1, T: 4 });
    const x = b.external('x', 'weights', 'f16', [3, 2]);
    b.setLayer(5);
    b.output('y', b.activation('embedding-lookup', { table: x, tokens: b.scalar('tokens', ['T']) }, { scale: 0.5 }));
    const words = encodeProgram(b.build(), (buffer) => buffer * 0x1_0000_1000);
    // opcode, length, layer; table; tokens in word 2 of the block; y; scale
    expect([...words]).toEqual([0, 21, 5, 3, 1, 0x2000, 2, 3, 2, 2, 26, 8, 0, -2, 3, 0, 0x1000, 1, -2, 2, 0x3f000000]);
  });
});

describe('encoded programs: absent operands and limits', () => {
  it('mark absent inputs with one word', () => {
    const encode = (withBias: boolean): Int32Array => {
      const b = new ProgramBuilder({});
      const x = b.external('x', 'weights', 'f32', [2, 4]);
      const bias = withBias ? b.external('bias', 'weights', 'f32', [4]) : undefined;
      b.output(
        'y',
        b.activation('layer-norm', { x, weight: b.external('w', 'weights', 'f32', [4]), bias }, { eps: 1 }),
      );
      return encodeProgram(b.build(), (buffer) => buffer * 64);
    };
    expect(encode(false)).toHaveLength(encode(true).length - 4);
    expect(decodeProgram(encode(false))[0].inputs['bias']).toBeUndefined();
    expect(decodeProgram(encode(true))[0].inputs['bias'].dims).toEqual([4]);
  });

  it('mark outputs that were not requested with one word', () => {
    const encode = (mass: boolean): Int32Array => {
      const b = new ProgramBuilder({ T: 4 });
      const cacheOf = (name: string) => b.external(name, 'kv', 'f32', [3, 1, 2, 4]);
      const inputs = {
        q: b.external('q', 'weights', 'f32', [2, 1, 4]),
        positions: b.scalar('positions', [2]),
        sequences: b.scalar('sequences', [2]),
        keys: cacheOf('keys'),
        values: cacheOf('values'),
        slotPositions: b.external('slotPositions', 'kv', 'i32', [3, 2]),
        blockTable: b.scalar('blockTable', [1, 5]),
        contextLengths: b.scalar('contextLengths', [1]),
      };
      const outputs = b.append('oracle-topk-attention', inputs, { scale: 1, k: 3, mass });
      expect(Object.keys(outputs)).toEqual(mass ? ['y', 'pairs', 'mass'] : ['y', 'pairs']);
      b.output('y', outputs['y']);
      const program = b.build();
      expect(() => validateProgram(program)).not.toThrow();
      return encodeProgram(program, (buffer) => buffer * 4096);
    };
    expect(encode(false)).toHaveLength(encode(true).length - 7);
    expect(decodeProgram(encode(false))[0].outputs['mass']).toBeUndefined();
    expect(decodeProgram(encode(true))[0].outputs['mass'].dims).toEqual([2, 1, 5, 2]);
  });

  it('reject an axis beyond 31 bits', () => {
    const b = new ProgramBuilder({});
    const x = b.external('x', 'weights', 'f32', [2 ** 31]);
    b.output('y', b.activation('softmax', { x }));
    expect(() => encodeProgram(b.build(), () => 0)).toThrow('axis of x: needed 2147483648 elements');
  });
});

describe('opcodes', () => {
  it('never change, since encoded programs outlive versions', () => {
    const names = [
      'embedding-lookup',
      'rms-norm',
      'layer-norm',
      'matmul',
      'rope',
      'softmax',
      'activation',
      'glu',
      'add',
      'soft-cap',
      'gather-rows',
      'position-append',
      'kv-append',
      'attention',
      'attention-partial',
      'attention-merge',
      'attention-finish',
      'arg-max',
      'top-k',
      'log-sum-exp',
      'multiply',
      'scale',
      'scale-rows',
      'slice-columns',
      'expert-route',
      'expert-matmul',
      'expert-combine',
      'short-conv',
      'gated-delta',
      'block-mean-append',
      'block-box-append',
      'key-columns-append',
      'clamp-positions',
      'subquadratic-attention',
      'streaming-attention',
      'sparq-attention',
      'page-topk-attention',
      'oracle-topk-attention',
      'h2o-attention',
      'pool-rows',
      'state-carry',
      'attention-mass',
      'hadamard',
      'active-neurons',
      'sparse-matmul',
      'gather-columns',
      'sparse-combine',
      'sparse-feed-forward',
      'scatter-rows',
    ];
    expect(opSpecs.slice(0, names.length).map(({ name }) => name)).toEqual(names); // more may follow
  });
});
