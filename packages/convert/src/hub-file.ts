/** The settings of a folder's language model, which some checkpoints nest. */
import { Fields, type ModelFile } from '@winnow/models';

export function textFile(file: ModelFile): ModelFile {
  const { format, fields } = file;
  if (format === 'gguf' || !fields.has('text_config')) return file;
  return { ...file, fields: Fields.ofJson(fields.source, fields.raw('text_config')) };
}
