/** Defects in file formats, the hub and conversion. */
import type { Mutant } from '../mutant.ts';

export const formatsMutants: readonly Mutant[] = [
  {
    file: 'packages/gguf/src/writer.ts',
    find: 'return offset + ((alignment - (offset % alignment)) % alignment);',
    replace: 'return offset + (alignment - (offset % alignment));',
    tests: ['src/writer.test.ts'],
  },
  {
    file: 'packages/gguf/src/parse-tensors.ts',
    find: 'if (end > fileBytes) {',
    replace: 'if (end > fileBytes + 1) {',
    tests: ['src/gguf-file.test.ts', 'src/fuzz.test.ts'],
  },
  {
    file: 'packages/gguf/src/parse-metadata.ts',
    find: 'const numBytes = length * minValueBytes[elementType];',
    replace: 'const numBytes = length;',
    tests: ['src/gguf-file.test.ts', 'src/fuzz.test.ts'],
  },
  {
    file: 'packages/gguf/src/gguf-file.ts',
    find: 'if (entry === undefined) return defaultGgufAlignment;',
    replace: 'if (entry === undefined) return 64;',
    tests: ['src/gguf-file.test.ts', 'src/oracle.test.ts'],
  },
  {
    file: 'packages/gguf/src/encode-header.ts',
    find: 'if (numBytes === 0 || numBytes > maxNameBytes) {',
    replace: 'if (numBytes > maxNameBytes) {',
    tests: ['src/writer.test.ts'],
  },
  {
    file: 'packages/safetensors/src/sharded.ts',
    find: 'if (index.totalSize === undefined) return;',
    replace: 'return;',
    tests: ['src/sharded.test.ts'],
  },
  {
    file: 'packages/onnx/src/dequantize.ts',
    find: 'const factor = factors[row * numBlocks + block] as number;',
    replace: 'const factor = factors[block] as number;',
    tests: ['src/onnx-file.test.ts', 'packages/engine/test/load/onnx.test.ts'],
  },
  {
    file: 'packages/onnx/src/tensor-proto.ts',
    find: 'return source.read(range.begin + byteOffset, target, options);',
    replace: 'return source.read(range.begin, target, options);',
    tests: ['src/onnx-file.test.ts', 'packages/engine/test/load/onnx.test.ts'],
  },
  {
    file: 'packages/hub/src/repo-cache.node.ts',
    find: 'if (found === undefined || found.blocks === 0 || needed <= available) return;',
    replace: 'if (found === undefined || found.blocks === 0 || needed > available) return;',
    tests: ['src/download-repo.node.test.ts'],
  },
  {
    file: 'packages/hub/src/chat-template.ts',
    find: "if (typeof config.value['chat_template'] === 'string') {",
    replace: "if (typeof config.value['chat_template'] !== 'string') {",
    tests: ['src/hub/model.test.ts'],
  },
  {
    file: 'packages/convert/src/gguf-settings.ts',
    find: "if (isEncoder === true) pairs.push(['attention.causal', false]);",
    replace: "if (isEncoder === true) pairs.push(['attention.causal', true]);",
    tests: ['test/goldens.test.ts', 'test/convert-files.test.ts'],
  },
  {
    file: 'packages/convert/src/hub-settings.ts',
    find: "return experts === undefined ? (slidingWindow > 0 ? 'mistral' : 'llama') : 'mixtral';",
    replace: "return experts !== undefined ? (slidingWindow > 0 ? 'mistral' : 'llama') : 'mixtral';",
    tests: ['test/goldens.test.ts', 'test/convert-files.test.ts'],
  },
  {
    file: 'packages/convert/src/views.ts',
    find: 'sources[begin + index * step] =',
    replace: 'sources[begin + (index ^ 1) * step] =',
    tests: ['test/goldens.test.ts'],
  },
  {
    file: 'packages/models/src/file/gathered-views.ts',
    find: '* numRows + begin + (row % count)',
    replace: '* count + begin + (row % count)',
    tests: ['test/experts.test.ts'],
  },
  {
    file: 'packages/models/src/blocks/experts.ts',
    find: "biased('down', products as ProgramTensor)",
    replace: '(products as ProgramTensor)',
    tests: ['packages/engine/test/goldens/architectures.test.ts'],
    only: 'gpt-oss',
  },
  {
    file: 'packages/safetensors/src/mxfp4.ts',
    find: 'codeOf(block, i + codeBytes) << 4',
    replace: 'codeOf(block, i) << 4',
    tests: ['src/mxfp4.test.ts'],
  },
  {
    file: 'packages/convert/src/replace-folder.node.ts',
    find: '(isDone ? rm(',
    replace: '(!isDone ? rm(',
    tests: ['test/killed.test.ts'],
  },
  {
    file: 'packages/convert/src/reorder.ts',
    find: 'const at = row - skipped;',
    replace: 'const at = row;',
    tests: ['test/goldens.test.ts', 'test/convert-files.test.ts'],
  },
  {
    file: 'packages/convert/src/layout.ts',
    find: 'const unused = rows.begin === 0 ?',
    replace: 'const unused = rows.begin >= 0 ?',
    tests: ['test/goldens.test.ts'],
    only: 'xlm-roberta',
  },
  {
    file: 'packages/convert/src/hub-settings.ts',
    find: 'description.config.contextLength + padding + 1',
    replace: 'description.config.contextLength + padding',
    tests: ['test/goldens.test.ts'],
    only: 'XLM-RoBERTa',
  },
];
