import { fileURLToPath } from 'node:url';
import { readFileSync } from 'node:fs';
import { blobSource, memorySource } from '@winnow/bytes';
import { FormatError, IoError, ReleasedError } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { counted, filler, ggufBytes, padded, sampleModel } from '../test/support.js';
import { openGguf } from './index.js';
import { openGgufFile } from './index.node.js';

const fixture = new URL('__fixtures__/llama.gguf', import.meta.url);

describe('openGguf', () => {
  it('reads a model written by gguf-py', async () => {
    const file = await openGguf(memorySource(new Uint8Array(readFileSync(fixture)), 'llama.gguf'));
    expect(file.version).toBe(3);
    expect(file.alignment).toBe(32);
    expect(file.metadata.getString('general.architecture')).toBe('llama');
    expect(file.metadata.getStrings('tokenizer.ggml.tokens')).toHaveLength(320);
    const embedding = file.tensors.get('token_embd.weight')!;
    expect(embedding.dtype).toBe('f32');
    expect(embedding.shape).toEqual([320, file.metadata.getInteger('llama.embedding_length')]); // rows first
    const last = Math.max(...[...file.tensors.values()].map((tensor) => tensor.byteOffset + tensor.sizeBytes));
    expect(last).toBeLessThanOrEqual(file.parts[0]!.sizeBytes);
    expect(file.parts).toEqual([
      { name: 'llama.gguf', sizeBytes: 469_056, dataOffset: file.dataOffset, numTensors: file.tensors.size },
    ]);
  });

  it('reads ranges of a tensor, and rejects invalid ones', async () => {
    const file = await openGguf(memorySource(await ggufBytes(sampleModel())));
    const tensor = file.tensors.get('two')!;
    expect(tensor).toMatchObject({ dtype: 'q8_0', shape: [2, 32], sizeBytes: 68, partIndex: 0 });
    const target = new Uint8Array(10);
    await tensor.read(target, { byteOffset: 50 });
    expect(target).toEqual(filler(68, 2).subarray(50, 60));
    for (const byteOffset of [59, 68, -1, 0.5, Number.NaN]) {
      await expect(tensor.read(target, { byteOffset })).rejects.toThrow(IoError);
    }
    await expect(tensor.read(new Uint8Array(69))).rejects.toThrow(/memory: two: range outside of the tensor/);
    await expect(tensor.read(target, { signal: AbortSignal.abort(new Error('stop')) })).rejects.toThrow('stop');
    expect(file.tensors.get('scalar')!.shape).toEqual([]);
  });

  it('reads the same from a Blob', async () => {
    const bytes = await ggufBytes(sampleModel());
    const file = await openGguf(blobSource(new Blob([bytes]), 'blob'));
    const data = new Uint8Array(24);
    await file.tensors.get('one')!.read(data);
    expect(data).toEqual(filler(24, 1));
  });
});

describe('reads of openGguf', () => {
  it('cover the header and no tensor data', async () => {
    // 100 kB of header, then 400 MB of virtual data
    const tokens = Array.from({ length: 6000 }, (_, index) => `token ${index}`);
    const bytes = await ggufBytes({
      metadata: { tokens },
      tensors: [{ name: 't', dtype: 'f32', shape: [0], data: new Uint8Array(0) }],
    });
    const info = Buffer.from(bytes.buffer).lastIndexOf(Buffer.from([1, 0, 0, 0, 0, 0, 0, 0, 0x74]));
    new DataView(bytes.buffer).setBigUint64(info + 9 + 4, 100_000_000n, true);
    const source = counted(padded(bytes, bytes.byteLength + 400_000_000));
    const file = await openGguf(source);
    expect(file.tensors.get('t')!.sizeBytes).toBe(400_000_000);
    expect(source.readBytes).toBeLessThanOrEqual(2 * file.dataOffset + 64 * 1024);
    expect(source.numReads).toBeLessThanOrEqual(3);
  });

  it('take one pass over a vocabulary of 256 k tokens', async () => {
    const tokens = Array.from({ length: 262_144 }, (_, index) => `▁token${index}`);
    const scores = Float32Array.from({ length: 262_144 }, (_, index) => -index);
    const bytes = await ggufBytes({
      metadata: { tokens, scores: { type: 'array', elementType: 'float32', value: scores } },
    });
    const source = counted(memorySource(bytes));
    const file = await openGguf(source);
    expect(file.metadata.getStrings('tokens')).toEqual(tokens);
    expect(file.metadata.getNumbers('scores')).toEqual(scores);
    expect(source.readBytes).toBe(bytes.byteLength);
    expect(source.numReads).toBeLessThan(12); // 64 kB doubling to 4 MB
  });

  it('leave the source open when the file is rejected, and close it with the file', async () => {
    const broken = counted(memorySource(new Uint8Array(10)));
    await expect(openGguf(broken)).rejects.toThrow(FormatError);
    expect(broken.numCloses).toBe(0);

    const source = counted(memorySource(await ggufBytes(sampleModel())));
    const file = await openGguf(source);
    await file.close();
    expect(source.numCloses).toBe(1);
    await expect(file.tensors.get('one')!.read(new Uint8Array(1))).rejects.toThrow(ReleasedError);
  });

  it('stop on an abort', async () => {
    const source = memorySource(await ggufBytes(sampleModel()));
    await expect(openGguf(source, { signal: AbortSignal.abort(new Error('stop')) })).rejects.toThrow('stop');
  });
});

describe('unusual files', () => {
  it('have tensors in any order with gaps between them, and bytes after the end', async () => {
    const tensors = ['a', 'b'].map((name, seed) => ({
      name,
      dtype: 'f32' as const,
      shape: [8],
      data: filler(32, seed),
    }));
    const written = await ggufBytes({ tensors });
    const { dataOffset } = await openGguf(memorySource(written));
    const bytes = new Uint8Array(dataOffset + 32 * 5 + 7);
    bytes.set(written.subarray(0, dataOffset));
    const infoBytes = 8 + 1 + 4 + 8 + 4 + 8; // the offset is the last field
    const view = new DataView(bytes.buffer);
    view.setBigUint64(24 + infoBytes - 8, 96n, true);
    view.setBigUint64(24 + 2 * infoBytes - 8, 32n, true);
    bytes.set(filler(32, 0), dataOffset + 96);
    bytes.set(filler(32, 1), dataOffset + 32);
    const file = await openGguf(memorySource(bytes));
    for (const [seed, name] of ['a', 'b'].entries()) {
      const data = new Uint8Array(32);
      await file.tensors.get(name)!.read(data);
      expect(data).toEqual(filler(32, seed));
    }
  });

  it('have no tensors and no padding', async () => {
    const bytes = await ggufBytes({ metadata: { a: 'x' } });
    expect(bytes.byteLength).toBe(64);
    const file = await openGguf(memorySource(bytes.subarray(0, 24 + 9 + 4 + 9)));
    expect(file.metadata.getString('a')).toBe('x');
  });

  it('have tokens that start with a byte order mark', async () => {
    const file = await openGguf(memorySource(await ggufBytes({ metadata: { a: ['\ufeffx'] } })));
    expect(file.metadata.getStrings('a')).toEqual(['\ufeffx']);
  });
});

describe('openGgufFile', () => {
  it('opens a path', async () => {
    const file = await openGgufFile(fileURLToPath(fixture));
    const tensor = file.tensors.get('output_norm.weight')!;
    const data = new Uint8Array(tensor.sizeBytes);
    await tensor.read(data);
    expect(data).toEqual(
      new Uint8Array(readFileSync(fixture)).subarray(tensor.byteOffset, tensor.byteOffset + tensor.sizeBytes),
    );
    await file.close();
    await expect(tensor.read(data)).rejects.toThrow(ReleasedError);
  });

  it('reports a missing file', async () => {
    await expect(openGgufFile('/nowhere/model.gguf')).rejects.toThrow(IoError);
  });
});
