/** Builders of flags: values are validated when they are parsed, and errors name the flag. */
import { Option, type Command } from 'commander';
import { UsageError } from '../errors/errors.js';
import { parseBytes, parseNumber, refuse, type NumberRule } from './parse-values.js';

type RuleName = 'count' | 'fromZero' | 'orMinusOne' | 'temperature' | 'share' | 'shareOrZero' | 'positive' | 'any';

export const numberRules: Readonly<Record<RuleName, NumberRule>> = {
  count: { integer: true, expected: 'an integer of at least 1', isValid: (value) => value >= 1 },
  fromZero: { integer: true, expected: 'an integer of at least 0', isValid: (value) => value >= 0 },
  orMinusOne: { integer: true, expected: 'an integer of at least 0, or -1', isValid: (value) => value >= -1 },
  temperature: { expected: 'a number from 0', isValid: (value) => value >= 0 },
  share: { expected: 'a number above 0, at most 1', isValid: (value) => value > 0 && value <= 1 },
  shareOrZero: { expected: 'a number from 0 to 1', isValid: (value) => value >= 0 && value <= 1 },
  positive: { expected: 'a number above 0', isValid: (value) => value > 0 },
  any: { expected: 'a number', isValid: () => true },
};

/** The long name of an option as the user writes it, for messages. */
function longName(flags: string): string {
  return /--[a-z-]+/.exec(flags)?.[0] ?? flags;
}

export function flag(flags: string, description: string): Option {
  return new Option(flags, description);
}

export function parsedOption<T>(
  flags: string,
  description: string,
  parse: (flagName: string, text: string) => T,
): Option {
  return flag(flags, description).argParser((text) => parse(longName(flags), text));
}

export function numberOption(flags: string, description: string, rule: NumberRule): Option {
  return parsedOption(flags, description, (name, text) => parseNumber(name, text, rule));
}

export function sizeOption(flags: string, description: string): Option {
  return parsedOption(flags, description, parseBytes);
}

/** A flag with fixed choices, which its help lists after the description. */
export function choiceOption(flags: string, description: string, choices: readonly string[], absent?: string): Option {
  const help = `${description}: ${choices.join(', ')}${absent === undefined ? '' : ` (default: ${absent})`}`;
  return parsedOption(flags, help, (name, text) => {
    if (!choices.includes(text)) throw refuse(name, choices.join(', '), text);
    return text;
  });
}

/** `--out`, the file of a picture. */
export function svgOption(description: string): Option {
  return parsedOption('--out <file>', description, (name, text) => {
    if (!/\.svg$/i.test(text)) throw refuse(name, 'a file that ends in .svg', text);
    return text;
  });
}

/** A flag that may be repeated. */
export function listOption(flags: string, description: string): Option {
  return flag(flags, description).argParser((text: string, previous: readonly string[] | undefined) => {
    if (text === '') throw refuse(longName(flags), 'a text', text);
    return [...(previous ?? []), text];
  });
}

/** Another name of a flag, such as that of llama.cpp. Help does not show it. */
class AliasOption extends Option {
  readonly #original: Option;

  constructor(flags: string, original: Option) {
    super(flags);
    this.#original = original;
    if (original.parseArg !== undefined) this.argParser(original.parseArg);
    this.hidden = true;
  }

  override attributeName(): string {
    return this.#original.attributeName();
  }
}

/** A flag that may be repeated, and its other names. */
export function listWithAliases(option: Option, ...aliases: readonly string[]): Option[] {
  return [option, ...aliases.map((flags) => new AliasOption(flags, option))];
}

/** A flag and its other names, of which a command line may have one. */
export function withAliases(option: Option, ...aliases: readonly string[]): Option[] {
  const options = listWithAliases(option, ...aliases);
  let given: string | undefined;
  for (const each of options) {
    const { parseArg } = each;
    const name = longName(each.flags);
    each.argParser((text, previous) => {
      if (given !== undefined && given !== name) throw new UsageError(`${name}: cannot be combined with ${given}`);
      given = name;
      return parseArg?.(text, previous) ?? text;
    });
  }
  return options;
}

const advancedOptions = new WeakSet<Option>();

export function isAdvanced(option: Option): boolean {
  return advancedOptions.has(option);
}

export interface FlagGroup {
  readonly heading: string;
  /** Commonly used flags. */
  readonly common?: readonly Option[];
  /** Flags that only `--help-all` shows. */
  readonly advanced?: readonly Option[];
}

export function addGroup(command: Command, { heading, common = [], advanced = [] }: FlagGroup): Command {
  for (const option of advanced) advancedOptions.add(option);
  for (const option of [...common, ...advanced]) command.addOption(option.helpGroup(`${heading}:`));
  return command;
}
