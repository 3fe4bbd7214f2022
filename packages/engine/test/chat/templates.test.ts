/**
 * Chat templates of well-known models, rendered and tokenized; shortened to the parts that affect the prompt.
 */
import { ArgumentError, FormatError } from '@winnow/tensor';
import { describe, expect, test } from 'vitest';
import { loadModel, openTokenizer, type ChatMessage } from '../../src/index.js';
import { tinyFolder, wordTokenizer } from '../support/tiny-model.js';

const conversation: readonly ChatMessage[] = [
  { role: 'system', content: 'Be brief.' },
  { role: 'user', content: 'Hi' },
  { role: 'assistant', content: 'Hello' },
  { role: 'user', content: 'Bye' },
];

const llama3 = `{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
`;

const chatml = `{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system
You are a helpful AI assistant<|im_end|>
' }}{% endif %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}`;

const mistral = `{{ bos_token }}{% for message in messages %}\
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate \
user/assistant/user/assistant/...') }}{% endif %}\
{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}\
{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}\
{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}`;

const llama2 = `{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}\
{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}\
{% set system_message = false %}{% endif %}{% for message in loop_messages %}\
{% if loop.index0 == 0 and system_message != false %}\
{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}\
{% set content = message['content'] %}{% endif %}\
{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}\
{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}`;

const zephyr = `{% for message in messages %}\n\
{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + eos_token }}\n\
{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n\
{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n\
{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}`;

/** Every character of the rendered templates in its byte-level BPE spelling, and two special tokens. */
const words = ['<s>', '</s>', ...Array.from({ length: 94 }, (_, index) => String.fromCharCode(33 + index)), 'Ġ', 'Ċ'];

async function modelWith(template: string, tokenizerConfig: object = {}) {
  const files = {
    'tokenizer.json': wordTokenizer(words, ['<s>', '</s>']),
    'tokenizer_config.json': { bos_token: '<s>', eos_token: '</s>', chat_template: template, ...tokenizerConfig },
  };
  return loadModel(await tinyFolder({ vocabSize: words.length, files }), { context: 1024 });
}

async function render(template: string, messages: readonly ChatMessage[], options: object = {}): Promise<string> {
  await using model = await modelWith(template);
  return model.chatTemplate!.render(messages, options);
}

describe('rendered', () => {
  test('Llama 3.2', async () => {
    const variables = { date_string: '1 Jan 2025' };
    expect(await render(llama3, conversation, { variables })).toBe(
      '<s><|start_header_id|>system<|end_header_id|>\n\nToday Date: 1 Jan 2025\n\nBe brief.<|eot_id|>' +
        '<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>' +
        '<|start_header_id|>assistant<|end_header_id|>\n\nHello<|eot_id|>' +
        '<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>' +
        '<|start_header_id|>assistant<|end_header_id|>\n\n',
    );
    expect(await render(llama3, conversation)).toMatch(/Today Date: \d\d \w{3} \d{4}\n/);
    expect(await render(llama3, conversation, { variables: { ...variables, tools: [] } })).toContain(
      'Environment: ipython',
    );
  });

  test('ChatML, with the default system message of the model', async () => {
    expect(await render(chatml, conversation.slice(1, 2))).toBe(
      '<|im_start|>system\nYou are a helpful AI assistant<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n',
    );
    expect(await render(chatml, conversation, { addGenerationPrompt: false })).toMatch(/user\nBye<\|im_end\|>\n$/);
  });

  test('Mistral, which rejects unknown roles', async () => {
    expect(await render(mistral, conversation.slice(1))).toBe('<s>[INST] Hi [/INST]Hello</s>[INST] Bye [/INST]');
    const refused = render(mistral, conversation);
    await expect(refused).rejects.toThrow(ArgumentError);
    await expect(refused).rejects.toThrow(/Conversation roles must alternate/);
  });

  test('Llama 2', async () => {
    expect(await render(llama2, conversation)).toBe(
      '<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST] Hello </s><s>[INST] Bye [/INST]',
    );
  });

  test('Zephyr and TinyLlama', async () => {
    expect(await render(zephyr, conversation)).toBe(
      '<|system|>\nBe brief.</s>\n<|user|>\nHi</s>\n<|assistant|>\nHello</s>\n<|user|>\nBye</s>\n<|assistant|>\n',
    );
  });
});

describe('rendered as by Jinja for Python', () => {
  const messages = [{ role: 'user', content: '\n a\n\n' }];

  test.each([
    ["{{ messages[0].content.strip('\\n') }}|", ' a|'],
    ["{{ messages[0].content.lstrip('\\n') }}|", ' a\n\n|'],
    ["{{ messages[0].content.rstrip('\\n') }}|", '\n a|'],
    ["{{ '<s>'.strip('<>') }}{{ 'xxx'.strip('x') }}{{ ' y '.strip() }}", 'sy'],
    ["{{ '<think>\\n b</think>\\n c '.split('</think>')[-1].lstrip('\\n') }}|", ' c |'],
    ["{{ '\ud83c\udf0a\ud83c\udf0ab'.lstrip('\ud83c\udf0a') }}", 'b'],
    ["{{ 'abba'.strip('ab') }}[{{ messages[0].name | trim }}]", '[]'],
    ['{% if true %}\r\na\r\n{% endif %}\r\nb\rc', 'a\nb\nc'],
  ])('%j', async (template, text) => {
    expect(await render(template, messages)).toBe(text);
  });
});

describe('BOS and EOS', () => {
  const bos = words.indexOf('<s>');
  const eos = words.indexOf('</s>');
  const count = (ids: Int32Array, id: number): number => ids.filter((each) => each === id).length;

  test.each([
    ['written by the template, requested by the model', mistral, { add_bos_token: true }, 1],
    ['written by the template alone', mistral, { add_bos_token: false }, 1],
    ['requested by the model alone', zephyr, { add_bos_token: true }, 1],
    ['requested by neither', chatml, { add_bos_token: false }, 0],
  ])('BOS %s', async (_case, template, tokenizerConfig, numBos) => {
    await using model = await modelWith(template, tokenizerConfig);
    const ids = model.encodePrompt([{ role: 'user', content: 'Hi' }]);
    expect([ids[0] === bos, count(ids, bos)]).toEqual([numBos === 1, numBos]);
  });

  test('the prompt of a conversation does not end with EOS, even if the tokenizer appends it to texts', async () => {
    await using model = await modelWith(chatml, { add_eos_token: true });
    expect(count(model.encodePrompt([{ role: 'user', content: 'Hi' }]), eos)).toBe(0);
    expect(model.encodePrompt('Hi').at(-1)).toBe(eos);
  });

  test('a conversation used as a prompt equals the tokens of its rendering', async () => {
    await using model = await modelWith(mistral, { add_bos_token: true });
    const messages = conversation.slice(1);
    const text = model.chatTemplate!.render(messages);
    expect(model.encodePrompt(messages)).toEqual(model.tokenizer.encode(text, { addSpecialTokens: false }));
    const options = { temperature: 0, maxTokens: 3, ignoreEos: true };
    const { promptTokens } = await model.generate(messages, options).result();
    expect(promptTokens).toBe(model.encodePrompt(messages).length);
  });
});

test('an invalid Jinja template fails when it is used; the model still generates from text', async () => {
  await using model = await modelWith('{% for %}');
  expect(() => model.encodePrompt([{ role: 'user', content: 'Hi' }])).toThrow(FormatError);
  expect(() => model.encodePrompt([{ role: 'user', content: 'Hi' }])).toThrow(/chat_template/);
  expect(model.encodePrompt('Hi').length).toBe(2);
});

test('an empty conversation is rejected, and rendering failures are typed errors', async () => {
  await using model = await modelWith(llama3);
  expect(() => model.encodePrompt([])).toThrow(ArgumentError);
  expect(() => model.encodePrompt([{ role: 'user', content: undefined as never }])).toThrow(/messages\[0\]\.content/);
});

test('openTokenizer returns the template of the folder', async () => {
  const files = {
    'tokenizer.json': wordTokenizer(words, ['<s>', '</s>']),
    'tokenizer_config.json': { bos_token: { content: '<s>' }, eos_token: '</s>', chat_template: mistral },
  };
  const { chatTemplate } = await openTokenizer(await tinyFolder({ files }));
  expect(chatTemplate?.render([{ role: 'user', content: 'Hi' }])).toBe('<s>[INST] Hi [/INST]');
});
