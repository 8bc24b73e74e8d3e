//! Assembles class files and archives of Java, since the hosts of tests have no compiler.

/// The opcodes that the tests need (The Java Virtual Machine Specification, chapter 6).
mod op {
    pub const ICONST_0: u8 = 0x03;
    pub const LDC: u8 = 0x12;
    pub const ALOAD_0: u8 = 0x2a;
    pub const AALOAD: u8 = 0x32;
    pub const POP: u8 = 0x57;
    pub const DUP: u8 = 0x59;
    pub const RETURN: u8 = 0xb1;
    pub const GETSTATIC: u8 = 0xb2;
    pub const INVOKEVIRTUAL: u8 = 0xb6;
    pub const INVOKESPECIAL: u8 = 0xb7;
    pub const INVOKESTATIC: u8 = 0xb8;
    pub const NEW: u8 = 0xbb;
}

/// A statement of `main`.
#[derive(Clone, Copy, Debug)]
pub enum Statement<'a> {
    /// Prints a line.
    Print(&'a str),
    /// Prints the value of a system property.
    PrintProperty(&'a str),
    /// Ignores a signal, by its name without `SIG`.
    Ignore(&'a str),
    /// Ends the program with the number in its first argument.
    ExitWithArgument,
    /// Waits forever.
    Wait,
}

/// The class named `Task`, whose `main` has no branches.
#[derive(Default)]
struct Class {
    pool: Vec<u8>,
    entries: u16,
    code: Vec<u8>,
}

impl Class {
    fn entry(&mut self, tag: u8, parts: &[&[u8]]) -> u16 {
        self.pool.push(tag);
        self.pool.extend(parts.concat());
        self.entries += 1;
        self.entries
    }

    fn utf8(&mut self, text: &str) -> u16 {
        let length = u16::try_from(text.len()).unwrap();
        self.entry(1, &[&length.to_be_bytes(), text.as_bytes()])
    }

    fn class(&mut self, name: &str) -> u16 {
        let name = self.utf8(name);
        self.entry(7, &[&name.to_be_bytes()])
    }

    /// Adds a reference to a field (tag 9) or a method (tag 10).
    fn member(&mut self, tag: u8, class: &str, name: &str, descriptor: &str) -> u16 {
        let (class, name, descriptor) = (self.class(class), self.utf8(name), self.utf8(descriptor));
        let both = self.entry(12, &[&name.to_be_bytes(), &descriptor.to_be_bytes()]);
        self.entry(tag, &[&class.to_be_bytes(), &both.to_be_bytes()])
    }

    fn op(&mut self, opcode: u8, index: u16) {
        self.code.push(opcode);
        self.code.extend(index.to_be_bytes());
    }

    fn call(&mut self, opcode: u8, class: &str, name: &str, descriptor: &str) {
        let method = self.member(10, class, name, descriptor);
        self.op(opcode, method);
    }

    fn get(&mut self, class: &str, name: &str, descriptor: &str) {
        let field = self.member(9, class, name, descriptor);
        self.op(op::GETSTATIC, field);
    }

    fn push(&mut self, text: &str) {
        let text = self.utf8(text);
        let string = self.entry(8, &[&text.to_be_bytes()]);
        self.code.extend([op::LDC, u8::try_from(string).unwrap()]);
    }

    fn add(&mut self, statement: Statement<'_>) {
        let print = |class: &mut Self| {
            class.call(op::INVOKEVIRTUAL, "java/io/PrintStream", "println", "(Ljava/lang/String;)V");
        };
        match statement {
            Statement::Print(text) => {
                self.get("java/lang/System", "out", "Ljava/io/PrintStream;");
                self.push(text);
                print(self);
            }
            Statement::PrintProperty(name) => {
                self.get("java/lang/System", "out", "Ljava/io/PrintStream;");
                self.push(name);
                let descriptor = "(Ljava/lang/String;)Ljava/lang/String;";
                self.call(op::INVOKESTATIC, "java/lang/System", "getProperty", descriptor);
                print(self);
            }
            Statement::Ignore(name) => {
                let signal = self.class("sun/misc/Signal");
                self.op(op::NEW, signal);
                self.code.push(op::DUP);
                self.push(name);
                self.call(op::INVOKESPECIAL, "sun/misc/Signal", "<init>", "(Ljava/lang/String;)V");
                self.get("sun/misc/SignalHandler", "SIG_IGN", "Lsun/misc/SignalHandler;");
                let descriptor = "(Lsun/misc/Signal;Lsun/misc/SignalHandler;)Lsun/misc/SignalHandler;";
                self.call(op::INVOKESTATIC, "sun/misc/Signal", "handle", descriptor);
                self.code.push(op::POP);
            }
            Statement::ExitWithArgument => {
                self.code.extend([op::ALOAD_0, op::ICONST_0, op::AALOAD]);
                self.call(op::INVOKESTATIC, "java/lang/Integer", "parseInt", "(Ljava/lang/String;)I");
                self.call(op::INVOKESTATIC, "java/lang/System", "exit", "(I)V");
            }
            Statement::Wait => {
                self.call(op::INVOKESTATIC, "java/lang/Thread", "currentThread", "()Ljava/lang/Thread;");
                self.call(op::INVOKEVIRTUAL, "java/lang/Thread", "join", "()V");
            }
        }
    }
}

/// Returns the file of a class `Task` whose `main` runs these statements.
pub fn class_file(statements: &[Statement<'_>]) -> Vec<u8> {
    let mut class = Class::default();
    let (this, parent) = (class.class("Task"), class.class("java/lang/Object"));
    let (main, code) = (class.utf8("main"), class.utf8("Code"));
    let descriptor = class.utf8("([Ljava/lang/String;)V");
    for statement in statements {
        class.add(*statement);
    }
    class.code.push(op::RETURN);

    // Version 50 is the last that needs no description of the stack at branches.
    let mut file = vec![0xca, 0xfe, 0xba, 0xbe, 0, 0, 0, 50];
    file.extend((class.entries + 1).to_be_bytes());
    file.extend(&class.pool);
    // A public class without interfaces and fields, with one method, which is public and static.
    for half in [0x0021, this, parent, 0, 0, 1, 0x0009, main, descriptor, 1, code] {
        file.extend(half.to_be_bytes());
    }
    let length = u32::try_from(class.code.len()).unwrap();
    file.extend((12 + length).to_be_bytes());
    // At most 4 values on the stack, one local variable.
    file.extend([0, 4, 0, 1]);
    file.extend(length.to_be_bytes());
    file.extend(&class.code);
    // No exceptions; no attributes of the code and of the class.
    file.extend([0; 6]);
    file
}

/// Returns an archive of uncompressed files that names `Task` as its main class.
pub fn jar_file(class: &[u8]) -> Vec<u8> {
    let manifest = b"Manifest-Version: 1.0\r\nMain-Class: Task\r\n\r\n";
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    let files: [(&str, &[u8]); 2] = [("META-INF/MANIFEST.MF", manifest), ("Task.class", class)];
    for (name, bytes) in files {
        let mut common = Vec::new();
        // Version 1.0, no flags, not compressed, the first minute of 1980.
        for half in [10_u16, 0, 0, 0, 0x21] {
            common.extend(half.to_le_bytes());
        }
        let size = u32::try_from(bytes.len()).unwrap();
        for word in [crc32(bytes), size, size] {
            common.extend(word.to_le_bytes());
        }
        common.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
        common.extend([0; 2]);
        directory.extend(b"PK\x01\x02\x0a\x00");
        directory.extend(&common);
        directory.extend([0; 10]);
        directory.extend(u32::try_from(file.len()).unwrap().to_le_bytes());
        directory.extend(name.bytes());
        file.extend(b"PK\x03\x04");
        file.extend(&common);
        file.extend(name.bytes());
        file.extend(bytes);
    }
    let start = u32::try_from(file.len()).unwrap();
    let length = u32::try_from(directory.len()).unwrap();
    file.extend(directory);
    file.extend(b"PK\x05\x06\0\0\0\0\x02\0\x02\0");
    file.extend(length.to_le_bytes());
    file.extend(start.to_le_bytes());
    file.extend([0; 2]);
    file
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| {
        (0..8).fold(
            sum ^ u32::from(*byte),
            |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 },
        )
    })
}
