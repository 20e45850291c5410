with sold as (

    select o.store_id, i.product_name, sum(i.item_total) as revenue
    from {{ ref('fct_items') }} i
    join {{ ref('fct_orders') }} o on i.order_id = o.order_id
    group by o.store_id, i.product_name

)

select * from (
    select *, rank() over (partition by store_id order by revenue desc) as place from sold
) where place <= 3
