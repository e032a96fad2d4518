# Entered by PVH: 32-bit, flat segments, no paging, %ebx points to the start info. What follows makes tables that map
# the first 4 GiB as they are, goes to 64 bit, asks KVM for its clock and drops to CPL 3 with IOPL 3. A load lives there:
# a KVM without hardware virtualization runs CPL 3 on the CPU and emulates CPL 0, and on others it makes no difference.
    .section .note.pvh, "a", @note
    .align 4
    .long 4, 4, 18
    .asciz "Xen"
    .long _start

    .section .text.start, "ax"
    .code32
    .globl _start
_start:
    cld
    mov $stack0_top, %esp
    mov %ebx, start_info
    mov $0x80000001, %eax
    cpuid
    test $0x4000000, %edx               # pages of 1 GiB: four, where there are
    jz 1f
    movl $0x00000087, tables_pdpt       # present, writable, CPL 3 too, large
    movl $0x40000087, tables_pdpt + 8
    movl $0x80000087, tables_pdpt + 16
    movl $0xc0000087, tables_pdpt + 24
    jmp 3f
1:  mov $tables_pd, %edi                # else 2048 of 2 MiB
    mov $0x87, %eax
2:  mov %eax, (%edi)
    add $8, %edi
    add $0x200000, %eax
    jnc 2b
    movl $tables_pd + 7, tables_pdpt
    movl $tables_pd + 0x1007, tables_pdpt + 8
    movl $tables_pd + 0x2007, tables_pdpt + 16
    movl $tables_pd + 0x3007, tables_pdpt + 24
3:  movl $tables_pdpt + 7, tables_pml4
    mov $tables_pml4, %eax
    mov %eax, %cr3
    mov $0x620, %eax                    # PAE, OSFXSR, OSXMMEXCPT
    mov %eax, %cr4
    mov $0xc0000080, %ecx               # EFER: LME
    xor %edx, %edx
    mov $0x101, %eax
    wrmsr
    mov $0x80010033, %eax               # PG, WP, NE, ET, MP, PE
    mov %eax, %cr0
    movl $stack0_top, tss + 4           # where CPL 0 has its stack
    movw $104, tss + 102                # the map of ports: not every KVM goes by IOPL alone
    movb $0xff, tss + 104 + 8192
    mov $tss, %eax
    mov %ax, gdt_tss + 2
    shr $16, %eax
    mov %al, gdt_tss + 4
    mov %ah, gdt_tss + 7
    lgdt gdtr
    lidt idtr
    ljmp $0x10, $4f

    .code64
4:  mov $0x18, %eax
    mov %eax, %ds
    mov %eax, %es
    mov %eax, %ss
    xor %eax, %eax
    mov %eax, %fs
    mov %eax, %gs
    mov $0x40, %eax
    ltr %ax
    mov $stack0_top, %rsp
    mov $0x40000000, %eax               # "KVMKVMKVM"
    cpuid
    cmp $0x4b4d564b, %ebx
    jne 5f
    mov $0x40000001, %eax
    cpuid
    test $8, %eax                       # KVM_FEATURE_CLOCKSOURCE2
    jz 5f
    mov $kvm_clock + 1, %eax
    xor %edx, %edx
    mov $0x4b564d01, %ecx               # MSR_KVM_SYSTEM_TIME_NEW
    wrmsr
5:  call settle
    mov start_info, %edi
    pushq $0x2b                         # SS of CPL 3
    pushq $stack3_top - 8
    pushq $0x3002                       # IOPL 3, no interrupts
    pushq $0x33                         # CS of CPL 3
    pushq $guest_main
    iretq

settle:                                 # what every CPU needs
    mov $0xc0000081, %ecx               # STAR: syscall to 0x10, sysret to 0x30 and 0x28
    xor %eax, %eax
    mov $0x00200010, %edx
    wrmsr
    mov $0xc0000082, %ecx               # LSTAR: the one call there is waits for an interrupt
    mov $halt, %eax
    xor %edx, %edx
    wrmsr
    mov $0xc0000084, %ecx               # FMASK: with interrupts off
    mov $0x200, %eax
    wrmsr
    mov $0xfee000f0, %eax               # the local APIC: on, spurious vector 0xff
    movl $0x1ff, (%rax)
    ret

# Another CPU starts in real mode on a page below 1 MiB, to which the next lines are copied (cpus.rs).
    .code16
    .globl low_begin
    .globl low_end
low_begin:
    cli
    lgdtl %cs:(low_gdtr - low_begin)
    mov %cr0, %eax
    or $1, %al
    mov %eax, %cr0
    ljmpl $8, $middle
low_gdtr:
    .word gdtr - gdt - 1
    .long gdt
low_end:

    .code32
middle:
    mov $0x18, %eax
    mov %eax, %ds
    mov %eax, %es
    mov %eax, %ss
    mov $tables_pml4, %eax
    mov %eax, %cr3
    mov $0x620, %eax
    mov %eax, %cr4
    mov $0xc0000080, %ecx
    xor %edx, %edx
    mov $0x101, %eax
    wrmsr
    mov $0x80010033, %eax
    mov %eax, %cr0
    lidt idtr
    ljmp $0x10, $high

    .code64
high:
    xor %eax, %eax
    mov %eax, %fs
    mov %eax, %gs
    xchg helper, %eax                   # taken once: a start that comes too late finds nothing to do
    test %eax, %eax
    jz 5f
    ltr %ax
    mov helper + 8, %rsp
    call settle
    mov helper + 24, %rdi
    pushq $0x2b
    pushq helper + 16
    pushq $0x3002
    pushq $0x33
    pushq (%rdi)                        # a task begins with what is to be called
    iretq
5:  hlt
    jmp 5b

    .globl halt
    .globl halt_end
halt:
    sti
    hlt
    cli
    sysretq
halt_end:

wake:
    push %rax
    mov $0xfee000b0, %eax               # end of interrupt
    movl $0, (%rax)
    pop %rax
    iretq

    .globl wake
    .globl stubs
    .align 16
stubs:
    .set vector, 0
    .rept 256
    .align 16
    pushq $vector
    jmp common
    .set vector, vector + 1
    .endr
common:
    mov %rsp, %rdi
    and $-16, %rsp
    call guest_trap
6:  hlt
    jmp 6b

    .data
    .align 16
gdt:
    .quad 0
    .quad 0x00cf9b000000ffff            # 0x08: 32-bit code of CPL 0
    .quad 0x00af9b000000ffff            # 0x10: code of CPL 0
    .quad 0x00cf93000000ffff            # 0x18: data of CPL 0
    .quad 0
    .quad 0x00cff3000000ffff            # 0x28: data of CPL 3
    .quad 0x00affb000000ffff            # 0x30: code of CPL 3
    .quad 0
    .globl gdt_tss
gdt_tss:
    .quad 0x0000890000002068, 0         # 0x40: with a map of ports, all of them free to CPL 3
    .skip 16 * 63                       # those of other CPUs
gdtr:
    .word gdtr - gdt - 1
    .long gdt, 0
idtr:
    .word 4095
    .long idt, 0
    .bss
    .globl start_info
    .globl helper
    .globl idt
    .globl kvm_clock
    .align 4096
tables_pml4: .skip 4096
tables_pdpt: .skip 4096
tables_pd:   .skip 16384
idt:         .skip 4096
tss:         .skip 104 + 8192 + 1
    .align 64
kvm_clock:   .skip 64
start_info:  .skip 64
helper:      .skip 64
    .align 16
stack0:      .skip 32768
stack0_top:
stack3:      .skip 262144
stack3_top:
