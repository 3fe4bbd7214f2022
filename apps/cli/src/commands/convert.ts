/** `winnow convert`: converts a model to another format or data type. */
import { fileURLToPath } from 'node:url';
import type { Command } from 'commander';
import { convertFiles, type ConvertFilesOptions } from '@winnow/convert/node';
import type { CommandContext, CommandHost } from './command-host.js';
import { UsageError } from '../errors/errors.js';
import { formatBytes, formatJson } from '../terminal/format.js';
import { locateModel } from '../models/open-model.js';
import { addGroup, flag, parsedOption, sizeOption } from '../flags/builders.js';
import { describe } from '../flags/help.js';
import { addOutputOptions, type CommonFlags } from '../flags/load.js';
import { parseQuantizeType } from '../flags/parse-values.js';

const examples = `
Examples:
  $ winnow convert ./model-folder model.gguf --type q4_K
  $ winnow convert owner/name model.gguf --type q8_0 --split-size 2GB
  $ winnow convert model.gguf small.gguf --type q4_0
  $ winnow convert owner/name model.gguf --type iq4_xs --imatrix imatrix.gguf
  $ winnow convert model.gguf ./model-folder --type f16

Tensors are streamed, so a model may be larger than memory. New files appear when all of them are complete.
`;

interface ConvertFlags extends CommonFlags {
  readonly type?: ConvertFilesOptions['type'];
  readonly splitSize?: number;
  readonly force?: boolean;
  readonly allowRequantize?: boolean;
  readonly imatrix?: string;
}

export function registerConvert(program: Command, host: CommandHost): void {
  const command = program
    .command('convert')
    .argument(
      '<source>',
      'a .gguf or .safetensors file that is a whole model, a Hugging Face folder or a hub repository',
    )
    .argument('<destination>', 'the .gguf file or folder to write');
  addGroup(command, {
    heading: 'Conversion',
    common: [
      parsedOption(
        '--type <type>',
        'type of the matrices: f32, f16, bf16, q8_0, q4_K, q4_K_M, ... (default: unchanged)',
        parseQuantizeType,
      ),
      sizeOption('--split-size <size>', 'maximum size of tensor data per file, such as 2GB'),
      flag('--force', 'replace existing files'),
      parsedOption(
        '--imatrix <file>',
        'importance matrix of llama-imatrix, by which quantization weights errors (q2_K to q6_K, iq4_nl, iq4_xs, mxfp4)',
        (_, text) => text,
      ),
      flag('--allow-requantize', 'requantize quantized weights; both quantization errors add up'),
    ],
  });
  addOutputOptions(command, 'print one JSON object');
  describe(command, 'Writes a model in another format or data type.', examples);
  command.action((source: string, destination: string, flags: ConvertFlags) =>
    host.run(flags, (context) => convert(source, destination, flags, context)),
  );
}

async function convert(
  source: string,
  destination: string,
  flags: ConvertFlags,
  context: CommandContext,
): Promise<void> {
  const { out, progress, signal, warn } = context;
  const location = await locateModel(source, context);
  const path = location instanceof URL && location.protocol === 'file:' ? fileURLToPath(location) : location;
  if (typeof path !== 'string') {
    throw new UsageError(`SOURCE: expected a path or a repository, got '${source}'`);
  }
  const result = await convertFiles(path, destination, {
    ...(flags.type === undefined ? {} : { type: flags.type }),
    ...(flags.imatrix === undefined ? {} : { imatrix: flags.imatrix }),
    ...(flags.splitSize === undefined ? {} : { splitSizeBytes: flags.splitSize }),
    overwrite: flags.force === true,
    allowRequantize: flags.allowRequantize === true,
    signal,
    onProgress: ({ writtenBytes, totalBytes }) => progress.show('convert', writtenBytes, totalBytes, 'bytes'),
  });
  progress.clear();
  for (const notice of result.notices) warn(notice);
  const [first, ...others] = result.kept;
  if (first !== undefined) {
    const more = others.length === 0 ? '' : ` and ${others.length} more`;
    warn(`not stored as ${flags.type}: ${first.name}${more}: ${first.reason}`);
  }
  if (flags.json === true) await out.write(formatJson(result));
  else await out.write(`${result.files.join('\n')}\n`);
  warn(`${result.numTensors} tensors, ${formatBytes(result.sizeBytes)}`);
}
