/** Reads the chat templates of a repository. */
import { FormatError, isRecord } from '@winnow/tensor';
import type { HubFiles } from './files.js';
import { readJsonFile, readTextFile, type JsonObject } from './json-object.js';
import { MAX_CONFIG_BYTES, MAX_TEMPLATE_BYTES } from './limits.js';

/** The name of the default template. */
export const DEFAULT_TEMPLATE = 'default';

const extraFolder = 'additional_chat_templates/';

/**
 * All templates by name. For a name that occurs in several files, `chat_template.jinja` wins over
 * `tokenizer_config.json`, which wins over `chat_template.json`, as in transformers.
 * @throws {FormatError}
 */
export async function readChatTemplates(
  files: HubFiles,
  tokenizerConfig: JsonObject | undefined,
  options: { signal?: AbortSignal },
): Promise<ReadonlyMap<string, string>> {
  const templates = new Map<string, string>();
  const processor = await readJsonFile(files, 'chat_template.json', MAX_CONFIG_BYTES, options);
  for (const config of [processor, tokenizerConfig]) {
    if (config !== undefined) collect(config, templates);
  }
  const file = await readTextFile(files, 'chat_template.jinja', MAX_TEMPLATE_BYTES, options);
  if (file !== undefined) templates.set(DEFAULT_TEMPLATE, file);
  for (const name of await files.list()) {
    const match = name.startsWith(extraFolder) ? /^([^/]+)\.jinja$/.exec(name.slice(extraFolder.length)) : null;
    const text = match === null ? undefined : await readTextFile(files, name, MAX_TEMPLATE_BYTES, options);
    if (text !== undefined) templates.set(match?.[1] as string, text);
  }
  return templates;
}

function collect(config: JsonObject, templates: Map<string, string>): void {
  if (!config.has('chat_template')) return;
  if (typeof config.value['chat_template'] === 'string') {
    templates.set(DEFAULT_TEMPLATE, config.string('chat_template'));
    return;
  }
  for (const [index, item] of config.array('chat_template').entries()) {
    const name = isRecord(item) ? item['name'] : undefined;
    const template = isRecord(item) ? item['template'] : undefined;
    if (typeof name !== 'string' || typeof template !== 'string') {
      throw new FormatError({
        source: config.source,
        field: `chat_template[${index}]`,
        message: 'expected an object with the strings "name" and "template"',
      });
    }
    templates.set(name, template);
  }
}
